"""Weights of 8 bits with scales beside them: compressed-tensors' int-quantized and float-quantized, and plain FP8.

weight int8 or float8 E4M3 [N, K], and a scale of the tensor [] or [1], of each output [N] or [N, 1], of each group
[N, K / group], or of each block of outputs and inputs [N / rows, K / columns], rounded up. weight = scale * code.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.quantization.codes import CodedMatrix, CodeScales, StoredLayer
from octavo.quantization.small_floats import E4M3

_RUNTIME = ("input_scale", "output_scale", "input_zero_point", "output_zero_point", "activation_scale")


class ScaledWeight:
    """See Packing. `block`: outputs and inputs that share a scale, if the configuration says so."""

    parts = ("weight_scale", "weight_scale_inv", "weight_zero_point", *_RUNTIME)

    def __init__(self, *, block: tuple[int, int] | None = None) -> None:
        self._block = block

    def shape(self, layer: StoredLayer) -> tuple[int, int]:
        """See Packing."""
        num_outputs, num_inputs = layer.shape("weight")
        return num_outputs, num_inputs

    def read(self, layer: StoredLayer) -> CodedMatrix:
        """See Packing."""
        num_outputs, num_inputs = self.shape(layer)
        name = "weight_scale_inv" if "weight_scale_inv" in layer else "weight_scale"  # not an inverse, for all its name
        block = self._block if self._block and layer.shape(name) != (num_outputs, 1) else None
        scales, group_size = spread(layer.array(name), (num_outputs, num_inputs), block)
        codes = layer.array("weight")
        if codes.dtype == np.uint8:
            return CodedMatrix("TABLE", codes, CodeScales(scales, group_size, table=E4M3))
        if codes.dtype != np.int8:
            raise ValueError(f"weight is of type {codes.dtype} and has scales; octavo reads I8 and F8_E4M3")
        zeros = None
        if "weight_zero_point" in layer:
            zeros, _ = spread(layer.array("weight_zero_point").astype(np.float32), (num_outputs, num_inputs), block)
        return CodedMatrix("I8", codes.view(np.uint8), CodeScales(scales, group_size, zeros))


def spread(
    scales: NDArray[np.float32], shape: tuple[int, int], block: tuple[int, int] | None
) -> tuple[NDArray[np.float32], int]:
    """Scales in any of the shapes above as [N, G], and the columns of a group."""
    num_outputs, num_inputs = shape
    if scales.size == 1:
        return np.broadcast_to(scales.reshape(1, 1), (num_outputs, 1)).copy(), num_inputs
    if block is not None:
        rows, columns = block
        if scales.shape != (-(-num_outputs // rows), -(-num_inputs // columns)):
            raise ValueError(f"scales of shape {list(scales.shape)} are not one for each {rows} x {columns} of {shape}")
        return scales[np.arange(num_outputs) // rows], columns
    grouped = scales.reshape(len(scales), -1)
    if len(grouped) != num_outputs or num_inputs % grouped.shape[1]:
        raise ValueError(f"scales of shape {list(scales.shape)} do not fit a weight of shape {list(shape)}")
    return np.ascontiguousarray(grouped), num_inputs // grouped.shape[1]
