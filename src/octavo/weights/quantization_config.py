"""What config.json says about how a checkpoint's weights are quantized."""

from __future__ import annotations

from octavo.quantization.awq import AWQ
from octavo.quantization.bitsandbytes import BitsAndBytes
from octavo.quantization.codes import Packing
from octavo.quantization.compressed_tensors import CompressedTensors
from octavo.quantization.gptq import GPTQ
from octavo.quantization.scaled_weight import ScaledWeight
from octavo.weights.fields import Fields
from octavo.weights.quantization_settings import compressed_weights, quantization_settings
from octavo.weights.source import CheckpointError

_GPTQ_VERSIONS = {"gptq": 1, "gptq_v2": 2}
_COMPRESSED = (
    "pack-quantized",
    "mxfp4-pack-quantized",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
    "mixed-precision",
    "dense",
)
_METHODS = ("awq", "gptq", "compressed-tensors", "bitsandbytes", "fp8", "fbgemm_fp8")


def read_packing(config: Fields) -> tuple[str, Packing] | None:
    """The method, by the name that --quantization gives it, and how to read its tensors; None: nothing is quantized.

    Raises CheckpointError for a method, or a layout of one, that octavo does not read.
    """
    settings = quantization_settings(config)
    if settings is None:
        return None
    method = settings.get("quant_method", str)
    if method == "awq":
        _require(settings, "version", ("gemm",), "gemm")
        _require(settings, "bits" if "bits" in settings else "w_bit", (4,), 4)
        return method, AWQ()
    if method == "gptq":
        version = _require(settings, "checkpoint_format", tuple(_GPTQ_VERSIONS), "gptq")
        exceptions = "dynamic" in settings and settings.get("dynamic", dict)
        return method, GPTQ(version=_GPTQ_VERSIONS[version], bits=None if exceptions else settings.count("bits"))
    if method == "compressed-tensors":
        _require(settings, "format", _COMPRESSED, "pack-quantized")
        return method, CompressedTensors(block=_compressed_block(settings))
    if method == "bitsandbytes":
        return method, BitsAndBytes()
    if method in ("fp8", "fbgemm_fp8"):
        return "fp8", ScaledWeight(block=_block(settings, "weight_block_size"))
    raise CheckpointError(
        f"{settings.place}: quant_method {method!r} is not supported; octavo reads {_listed(_METHODS)}"
    )


def _require(settings: Fields, name: str, supported: tuple, default: str | int) -> str:
    """The value of a setting, which must be one of those that are supported."""
    value = settings.get(name, type(default), default)
    if value not in supported:
        raise CheckpointError(f"{settings.place}: {name} is {value!r}; octavo reads {_listed(supported)}")
    return str(value)


def _compressed_block(settings: Fields) -> tuple[int, int] | None:
    """The blocks that share a scale, of the groups of layers that have such."""
    for weights in compressed_weights(settings):
        if "block_structure" in weights:
            return _block(weights, "block_structure")
    return None


def _block(settings: Fields, name: str) -> tuple[int, int] | None:
    if name not in settings:
        return None
    match settings.get(name, list):
        case [int(rows), int(columns)] if rows > 0 and columns > 0:
            return rows, columns
        case other:
            raise CheckpointError(f"{settings.place}: {name} is {other}; it must be two numbers above 0")


def _listed(names: tuple) -> str:
    return ", ".join(map(str, names))
