"""compressed-tensors' pack-quantized: whole numbers of 4 or 8 bits in words, as llm-compressor writes W4A16.

weight_packed int32 [N, K * bits / 32] and weight_zero_point [N * bits / 32, G] hold numbers + 2^(bits - 1), lowest bits
first; weight_scale float [N, G]; weight_shape says N and K; weight_g_idx int32 [K] the group of each input where they
are not in order. weight[n, k] = scale * (code - zero) of its group. Layers without a weight_shape are
mxfp4's, those that are not packed scaled_weight's.
"""

from __future__ import annotations

import numpy as np

from octavo.quantization.codes import CodedMatrix, StoredLayer, order_of_groups, unpack, whole_numbers
from octavo.quantization.mxfp4 import MXFP4
from octavo.quantization.scaled_weight import ScaledWeight


class CompressedTensors:
    """See Packing. Each layer says by its tensors how it is packed."""

    parts = ("weight_packed", "weight_shape", "weight_g_idx", *ScaledWeight.parts)

    def __init__(self, *, block: tuple[int, int] | None = None) -> None:
        self._unpacked = ScaledWeight(block=block)
        self._mxfp4 = MXFP4()

    def shape(self, layer: StoredLayer) -> tuple[int, int]:
        """See Packing."""
        if "weight_packed" not in layer:
            return self._unpacked.shape(layer)
        if "weight_shape" not in layer:
            return self._mxfp4.shape(layer)
        num_outputs, num_inputs = layer.array("weight_shape").tolist()
        bits, (rows, num_words) = self._bits(layer, num_inputs), layer.shape("weight_packed")
        if rows != num_outputs or num_words != -(-num_inputs * bits // 32):
            raise ValueError(
                f"weight_packed has shape {[rows, num_words]}, expected that of {[num_outputs, num_inputs]}"
            )
        return num_outputs, num_inputs

    def read(self, layer: StoredLayer) -> CodedMatrix:
        """See Packing."""
        if "weight_packed" not in layer:
            return self._unpacked.read(layer)
        if "weight_shape" not in layer:
            return self._mxfp4.read(layer)
        num_outputs, num_inputs = self.shape(layer)
        bits = self._bits(layer, num_inputs)
        scales = np.broadcast_to(layer.array("weight_scale"), (num_outputs, layer.shape("weight_scale")[-1]))
        num_groups = scales.shape[1]
        codes = unpack(layer.array("weight_packed"), bits).reshape(num_outputs, -1)[:, :num_inputs]
        order, group_size = None, num_inputs // num_groups
        if num_inputs % num_groups:
            raise ValueError(f"{num_inputs} inputs are not {num_groups} groups of one size")
        if "weight_g_idx" in layer:
            order, group_size = order_of_groups(layer.array("weight_g_idx"), num_groups)
        zeros = None
        if "weight_zero_point" in layer:
            packed = unpack(layer.array("weight_zero_point"), bits)  # [N * bits / 32, G, 32 / bits]
            zeros = packed.swapaxes(1, 2).reshape(-1, num_groups)[:num_outputs]
        ordered = codes if order is None else codes[:, order]
        return whole_numbers(
            np.ascontiguousarray(ordered), zeros, scales, bits=bits, group_size=group_size, order=order
        )

    @staticmethod
    def _bits(layer: StoredLayer, num_inputs: int) -> int:
        num_words = layer.shape("weight_packed")[1]
        for bits in (4, 8):
            if num_words == -(-num_inputs * bits // 32):
                return bits
        raise ValueError(f"{num_words} words hold {num_inputs} inputs of neither 4 nor 8 bits, which octavo reads")
