"""GPTQ (Frantar et al. 2022) as AutoGPTQ and GPTQModel write it, 4 or 8 bits.

qweight int32 [K * bits / 32, N] holds words along K, qzeros [G, N * bits / 32] along N, lowest bits first; scales float
[G, N]; g_idx int32 [K] is the group of each input, in any order where columns were quantized by their activations.
weight[n, k] = scales[g_idx[k], n] * (code[k, n] - zero[g_idx[k], n]).

Version 1 of the format stores zero - 1, of which 0 - 1 wraps around to the largest number; version 2 the zero itself.
"""

from __future__ import annotations

import numpy as np

from octavo.quantization.codes import CodedMatrix, StoredLayer, order_of_groups, unpack, whole_numbers


class GPTQ:
    """See Packing. `bits`: what the configuration says of all layers; None: it makes exceptions."""

    parts = ("qweight", "qzeros", "scales", "g_idx")

    def __init__(self, *, version: int, bits: int | None) -> None:
        self._version = version
        self._bits = bits

    def shape(self, layer: StoredLayer) -> tuple[int, int]:
        """See Packing."""
        (num_inputs,), (num_groups, num_outputs) = layer.shape("g_idx"), layer.shape("scales")
        num_words, width = layer.shape("qweight")
        if width * 8 == num_outputs:
            raise ValueError("qweight lies as AWQ lays it, words along N, and the configuration says GPTQ")
        bits = 32 * num_words // num_inputs
        if bits not in (4, 8) or self._bits not in (None, bits):
            raise ValueError(
                f"qweight holds {num_words} words for {num_inputs} inputs and the configuration says "
                f"{self._bits} bits; octavo reads GPTQ of 4 and of 8 bits"
            )
        expected = {"qweight": (num_inputs * bits // 32, num_outputs), "qzeros": (num_groups, num_outputs * bits // 32)}
        for part, shape in expected.items():
            if layer.shape(part) != shape:
                raise ValueError(f"{part} has shape {list(layer.shape(part))}, expected {list(shape)}")
        return num_outputs, num_inputs

    def read(self, layer: StoredLayer) -> CodedMatrix:
        """See Packing."""
        num_outputs, num_inputs = self.shape(layer)
        words, scales = layer.array("qweight"), layer.array("scales")
        bits = 32 * len(words) // num_inputs
        order, group_size = order_of_groups(layer.array("g_idx"), len(scales))
        codes = np.ascontiguousarray(unpack(words, bits).swapaxes(0, 1)).reshape(num_outputs, num_inputs)
        zeros = unpack(layer.array("qzeros"), bits).reshape(scales.shape)
        if self._version == 1:
            zeros = zeros + np.uint8(1) & np.uint8((1 << bits) - 1)
        ordered = codes if order is None else np.take(codes, order, axis=1)  # codes[:, order] is not C-contiguous
        return whole_numbers(ordered, zeros.T, scales.T, bits=bits, group_size=group_size, order=order)
