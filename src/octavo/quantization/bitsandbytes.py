"""bitsandbytes (Dettmers et al. 2022, 2023): NF4 and FP4, their scales quantized once more or not, and int8.

Four bits: weight uint8 [N * K / 2, 1], two codes a byte, the first one high, are indices of weight.quant_map;
weight.absmax is a scale for each `blocksize` codes, row after row. Where it is bytes, they are indices of
weight.nested_quant_map, times weight.nested_absmax for each `nested_blocksize`, plus `nested_offset`. The settings are
JSON in weight.quant_state.bitsandbytes__nf4 (or fp4). Eight bits: weight int8 [N, K], SCB float32 [N], weight = code *
SCB / 127, here with one rounding less than there.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.quantization.codes import CodedMatrix, CodeScales, StoredLayer, places

_STATES = ("weight.quant_state.bitsandbytes__nf4", "weight.quant_state.bitsandbytes__fp4")


class BitsAndBytes:
    """See Packing."""

    parts = (
        "SCB",
        "weight_format",
        "weight.absmax",
        "weight.quant_map",
        "weight.nested_absmax",
        "weight.nested_quant_map",
        *_STATES,
    )

    def shape(self, layer: StoredLayer) -> tuple[int, int]:
        """See Packing."""
        if "SCB" in layer:
            num_outputs, num_inputs = layer.shape("weight")
        else:
            num_outputs, num_inputs = map(int, _state(layer)["shape"])
        if min(num_outputs, num_inputs) < 1:
            raise ValueError(f"the quantization state gives a shape of {[num_outputs, num_inputs]}")
        return num_outputs, num_inputs

    def read(self, layer: StoredLayer) -> CodedMatrix:
        """See Packing."""
        shape = self.shape(layer)
        return _read_int8(layer, shape) if "SCB" in layer else _read_table(layer, shape)


def _read_int8(layer: StoredLayer, shape: tuple[int, int]) -> CodedMatrix:
    if "weight_format" in layer and layer.array("weight_format").any():
        raise ValueError("weight_format is not 0: the weight lies in tiles of a GPU; save it with bitsandbytes >= 0.45")
    scales = np.divide(layer.array("SCB").reshape(shape[0], 1), 127, dtype=np.float32)
    return CodedMatrix("I8", layer.array("weight").view(np.uint8), CodeScales(scales, shape[1]))


def _read_table(layer: StoredLayer, shape: tuple[int, int]) -> CodedMatrix:
    state = _state(layer)
    block, num_elements = int(state["blocksize"]), shape[0] * shape[1]
    packed = layer.array("weight").reshape(-1)
    if packed.dtype != np.uint8 or 2 * len(packed) != num_elements or block < 1:
        raise ValueError(f"{len(packed)} bytes of {packed.dtype} are not {num_elements} codes of 4 bits")
    codes = np.stack([packed >> 4, packed & 15], axis=-1).reshape(shape)
    # A scale may go over the end of a row: of the columns that surely share one there are so many.
    group_size = math.gcd(block, shape[1])
    block_of_group = np.arange(0, num_elements, group_size) // block
    scales = _block_scales(layer, state)[block_of_group]
    table = layer.array("weight.quant_map")
    if table.shape != (16,) or not np.isfinite(table).all():
        raise ValueError(f"weight.quant_map has shape {list(table.shape)}, expected [16] finite numbers")
    return places(codes, scales.reshape(shape[0], -1), group_size, table)


def _block_scales(layer: StoredLayer, state: dict[str, Any]) -> NDArray[np.float32]:
    absmax = layer.array("weight.absmax")
    if absmax.dtype != np.uint8:
        return absmax
    nested_block = int(state["nested_blocksize"])
    nested = layer.array("weight.nested_absmax")[np.arange(len(absmax)) // nested_block]
    return layer.array("weight.nested_quant_map")[absmax] * nested + np.float32(state["nested_offset"])


def _state(layer: StoredLayer) -> dict[str, Any]:
    name = next((name for name in _STATES if name in layer), _STATES[0])
    state = json.loads(layer.array(name).tobytes())
    if not isinstance(state, dict) or not {"blocksize", "shape"} <= state.keys():
        raise ValueError(f"{name} holds no quantization state")
    return state
