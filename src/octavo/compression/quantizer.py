"""Makes a smaller checkpoint of a larger one, in a layout that octavo and transformers read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.backends.ops import Float32Array
from octavo.compression.awq_search import clip_weights, quantize, search_scales
from octavo.compression.calibration import BlockInputs, collect_inputs
from octavo.compression.folder import write_folder
from octavo.quantization.awq import pack_columns
from octavo.weights.checkpoint import Checkpoint

GROUP_SIZES = (128, 64, 32)
CALIBRATION_TOKENS = 512
_LAYERS = {  # of a block, by the field of BlockInputs that goes into them
    "qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o_proj": ("self_attn.o_proj",),
    "gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
    "down_proj": ("mlp.down_proj",),
}
_SOURCES = {  # whose elements or rows make the columns of that input
    "qkv_proj": "input_layernorm.weight",
    "gate_up_proj": "post_attention_layernorm.weight",
    "down_proj": "mlp.up_proj.weight",
}
_UNCLIPPED = ("self_attn.q_proj", "self_attn.k_proj")  # what matters is their product, which is no output of theirs
_W8A8: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False},
            "input_activations": {
                "num_bits": 8,
                "type": "int",
                "symmetric": True,
                "strategy": "token",
                "dynamic": True,
            },
        }
    },
}

Tensors = dict[str, NDArray]
OnBlock = Callable[[int], None]


def write_awq(checkpoint: Checkpoint, folder: Path, text: str, on_block: OnBlock) -> None:
    """Four bits by activation-aware quantization, calibrated on the text, in AutoAWQ's gemm layout.

    `on_block` hears of each block that is done. Embedding, head and norms become float16. Raises ValueError if no group
    size divides the layers, FileExistsError as write_folder.
    """
    group_size = _group_size(checkpoint)
    tensors: Tensors = {}
    for i, inputs in enumerate(collect_inputs(checkpoint, text, max_tokens=CALIBRATION_TOKENS)):
        prefix = f"model.layers.{i}."
        block = {name.removeprefix(prefix): _read(checkpoint, name) for name in _names(checkpoint, prefix)}
        tensors |= {prefix + name: tensor for name, tensor in _quantize_block(block, inputs, group_size)}
        on_block(i)
    tensors |= {name: _half(_read(checkpoint, name)) for name in _names(checkpoint, "") if ".layers." not in name}
    config = {"quant_method": "awq", "bits": 4, "group_size": group_size, "zero_point": True, "version": "gemm"}
    write_folder(folder, checkpoint, tensors, config | {"modules_to_not_convert": ["lm_head"]})


def write_int8(checkpoint: Checkpoint, folder: Path) -> None:
    """Eight bits, a scale for each output: compressed-tensors' int-quantized, which llm-compressor calls W8A8.

    Embedding, head and norms become float16. Raises as write_folder.
    """
    layers = tuple(f"{layer}.weight" for layers in _LAYERS.values() for layer in layers)
    tensors: Tensors = {}
    for name in _names(checkpoint, ""):
        values = _read(checkpoint, name)
        if name.endswith(layers):
            scales = np.maximum(np.abs(values).max(1, keepdims=True) / np.float32(127), np.float32(1e-6))
            tensors[name] = np.rint(values / scales).astype(np.int8)
            tensors[f"{name}_scale"] = scales
        else:
            tensors[name] = _half(values)
    write_folder(folder, checkpoint, tensors, _W8A8)


def _quantize_block(
    weights: dict[str, Float32Array], inputs: BlockInputs, group_size: int
) -> Iterator[tuple[str, NDArray]]:
    """The tensors of a block, given by their names in it: its matrices scaled, clipped and packed."""
    for name, layers in _LAYERS.items():
        x, matrices = getattr(inputs, name), [f"{layer}.weight" for layer in layers]
        if sources := _sources(name, weights):
            scales = search_scales(x, [weights[matrix] for matrix in matrices], group_size)
            x = x / scales
            weights |= {matrix: weights[matrix] * scales for matrix in matrices}
            for source in sources:
                values = weights[source]
                weights[source] = values / (scales if values.ndim == 1 else scales[:, None])
        for matrix in matrices:
            if not matrix.startswith(_UNCLIPPED):
                weights[matrix] = clip_weights(x, weights[matrix], group_size)
    for name, values in weights.items():
        if values.ndim == 1:
            yield name, _half(values)
        else:
            packed = quantize(values, group_size)
            layer = name.removesuffix("weight")
            yield f"{layer}qweight", pack_columns(np.ascontiguousarray(packed.codes.T))
            yield f"{layer}qzeros", pack_columns(np.ascontiguousarray(packed.zeros.T))
            yield f"{layer}scales", np.ascontiguousarray(packed.scales.T)


def _sources(name: str, weights: dict[str, Float32Array]) -> tuple[str, ...]:
    """The tensors that make the input of these layers, column by column, and so can take factors off it."""
    if name == "o_proj":  # where heads share values, a factor would be for all of them
        values = ("self_attn.v_proj.weight", "self_attn.v_proj.bias")
        is_shared = len(weights[values[0]]) != weights["self_attn.o_proj.weight"].shape[1]
        return () if is_shared else tuple(source for source in values if source in weights)
    return (_SOURCES[name],)


def _group_size(checkpoint: Checkpoint) -> int:
    config = checkpoint.config
    widths = (config.hidden_size, config.num_heads * config.head_dim, config.intermediate_size)
    for size in GROUP_SIZES:
        if not any(width % size for width in widths):
            return size
    raise ValueError(f"no group of {GROUP_SIZES} inputs divides all of {widths}: the model cannot become AWQ")


def _names(checkpoint: Checkpoint, prefix: str) -> list[str]:
    return [name for name in checkpoint.tensors.names() if name.startswith(prefix)]


def _read(checkpoint: Checkpoint, name: str) -> Float32Array:
    return checkpoint.tensors.stored(name).to_float32()


def _half(values: Float32Array) -> NDArray[np.float16]:
    return values.astype(np.float16)
