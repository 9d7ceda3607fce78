"""How much room the tensor types of GGUF files take (ggml's GGML_QUANT_SIZES); quantization.gguf says what they mean.

Apart from the formulas, so that a file's header can be read without numpy.
"""

from __future__ import annotations

from typing import NamedTuple


class BlockSize(NamedTuple):
    """A block: the weights of one row that share a scale."""

    num_elements: int
    num_bytes: int


BLOCK_SIZES = {
    "F32": BlockSize(1, 4),
    "F16": BlockSize(1, 2),
    "BF16": BlockSize(1, 2),
    "Q8_0": BlockSize(32, 34),
    "Q4_0": BlockSize(32, 18),
    "Q4_1": BlockSize(32, 20),
    "Q5_0": BlockSize(32, 22),
    "Q5_1": BlockSize(32, 24),
    "MXFP4": BlockSize(32, 17),
    "Q4_K": BlockSize(256, 144),
    "Q5_K": BlockSize(256, 176),
    "Q6_K": BlockSize(256, 210),
}


def num_bytes(type_name: str, num_elements: int) -> int:
    """How many bytes that many elements of this type take."""
    block = BLOCK_SIZES[type_name]
    return num_elements // block.num_elements * block.num_bytes
