"""AWQ (Lin et al. 2023) in the layout called gemm, as AutoAWQ's `WQLinear_GEMM` writes it.

qweight int32 [K, N / 8] holds eight columns a word, four bits each, in an order of their own; qzeros [K / group, N / 8]
likewise; scales float [K / group, N]. weight[n, k] = scales[k // group, n] * (code[k, n] - zero[k // group, n]).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.quantization.codes import CodedMatrix, StoredLayer, whole_numbers

BITS = 4
COLUMN_OF_NIBBLE = (0, 2, 4, 6, 1, 3, 5, 7)  # nibble i of a word, from the lowest, is that column of its eight


class AWQ:
    """See Packing."""

    parts = ("qweight", "qzeros", "scales")

    def shape(self, layer: StoredLayer) -> tuple[int, int]:
        """See Packing."""
        (num_inputs, num_words), (num_groups, num_outputs) = layer.shape("qweight"), layer.shape("scales")
        if num_words == num_outputs:
            raise ValueError("qweight lies as GPTQ lays it, words along K, and the configuration says AWQ")
        if num_words * 8 != num_outputs or layer.shape("qzeros") != (num_groups, num_words):
            shapes = ", ".join(f"{part} {list(layer.shape(part))}" for part in self.parts)
            raise ValueError(f"{shapes} do not fit together as AWQ's gemm layout")
        if num_inputs % num_groups:
            raise ValueError(f"{num_inputs} inputs are not {num_groups} groups of one size")
        return num_outputs, num_inputs

    def read(self, layer: StoredLayer) -> CodedMatrix:
        """See Packing."""
        scales = layer.array("scales")  # [G, N]
        codes = unpack_columns(layer.array("qweight"))
        return whole_numbers(
            codes,
            unpack_columns(layer.array("qzeros")),
            scales.T,
            bits=BITS,
            group_size=codes.shape[1] // len(scales),
        )


def unpack_columns(words: NDArray[np.int32]) -> NDArray[np.uint8]:
    """[R, N / 8] -> [N, R]."""
    num_rows, num_words = words.shape
    octets = np.ascontiguousarray(words).astype("<i4", copy=False).view(np.uint8)  # [R, N / 2]
    columns = np.ascontiguousarray(octets.T).reshape(num_words, 4, num_rows)  # while they are half as many
    codes = np.empty((num_words, 8, num_rows), np.uint8)
    for nibble, column in enumerate(COLUMN_OF_NIBBLE):
        octet = columns[:, nibble // 2]
        codes[:, column] = octet >> BITS if nibble % 2 else octet & 15
    return codes.reshape(-1, num_rows)


def pack_columns(columns: NDArray[np.uint8]) -> NDArray[np.int32]:
    """[R, N] -> [R, N / 8]: what unpack_columns undoes, but for its turning rows into columns."""
    nibbles = columns.reshape(len(columns), -1, 8)[..., COLUMN_OF_NIBBLE].astype(np.uint32)
    shifts = np.arange(0, 32, BITS, dtype=np.uint32)
    return np.bitwise_or.reduce(nibbles << shifts, axis=-1).view(np.int32)
