"""QuantizedLayers: what config.json says of the codes and scales that linear layers are kept in."""

from __future__ import annotations

from typing import NamedTuple

from octavo.weights.fields import Fields
from octavo.weights.quantization_settings import compressed_weights, quantization_settings

ALL_INPUTS = 1 << 30  # a group that no row is longer than


class QuantizedLayers(NamedTuple):
    """Every linear layer but those of `exceptions` and the head."""

    format: str  # I4, I8 or TABLE4, as in quantization.codes
    group_size: int  # inputs that share a scale
    has_zeros: bool = False
    has_order: bool = False  # whether inputs are sorted by their groups
    exceptions: tuple[str, ...] = ()  # parts of the names of layers that are as they were

    def holds(self, name: str) -> bool:
        """Whether the parameter of that name is among them."""
        is_linear = "_proj." in name and name.endswith(".weight")
        return is_linear and not any(part in name for part in self.exceptions)


def read_quantized_layers(config: Fields) -> QuantizedLayers | None:
    """What config.json says; None where it says nothing. Raises CheckpointError for what contradicts itself.

    FP8's numbers and those in odd groups are none of whole codes: they become 8 bits in groups of 32.
    """
    settings = quantization_settings(config)
    if settings is None:
        return None
    exceptions = settings.get("modules_to_not_convert", list, []) + settings.get("ignore", list, [])
    kept = tuple(str(part).removeprefix("re:").strip(".*") for part in exceptions)
    match settings.get("quant_method", str):
        case "awq":
            group_size = settings.get("group_size", int, settings.get("q_group_size", int, 128))
            return QuantizedLayers("I4", _whole(group_size), settings.get("zero_point", bool, True), False, kept)
        case "gptq":
            codes = _format(settings.count("bits"))
            group_size = settings.get("group_size", int, 128)
            has_zeros = not settings.get("sym", bool, True)
            return QuantizedLayers(codes, _whole(group_size), has_zeros, settings.get("desc_act", bool, False), kept)
        case "compressed-tensors" if (weights := _weights(settings)) is not None:
            codes, group_size = _format(weights.count("num_bits")), weights.get("group_size", int, -1)
            return QuantizedLayers(codes, _whole(group_size), not weights.get("symmetric", bool, True), False, kept)
        case "compressed-tensors" if settings.get("format", str, "") == "mxfp4-pack-quantized":
            return QuantizedLayers("TABLE4", 32, exceptions=kept)
        case "bitsandbytes" if settings.get("load_in_4bit", bool, False):
            return QuantizedLayers("TABLE4", 64, exceptions=kept)  # unless it was told otherwise, which no file says
    return QuantizedLayers("I8", 32, exceptions=kept)


def _weights(settings: Fields) -> Fields | None:
    """The first group of layers whose weights are whole numbers."""
    whole = (weights for weights in compressed_weights(settings) if weights.get("type", str, "int") == "int")
    return next(whole, None)


def _format(num_bits: int) -> str:
    return "I4" if num_bits == 4 else "I8"


def _whole(group_size: int) -> int:
    """-1 means all inputs."""
    return group_size if group_size > 0 else ALL_INPUTS
