"""The tensor formats of GGUF files as formulas: the bytes of a block -> float32. Safetensors' floats are among them.

A block is a run of weights of one row that share a scale. The layouts are those of llama.cpp's ggml-common.h, the
formulas those of ggml-quants.c; each is written for B blocks at once. Products are taken in the same order as there,
so that the results agree bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from octavo.quantization.gguf_types import BLOCK_SIZES, num_bytes
from octavo.quantization.small_floats import E2M1

Float32Array = NDArray[np.float32]
ByteArray = NDArray[np.uint8]

_ELEMENTS_AT_ONCE = 1 << 18  # keeps a formula's intermediate arrays in the CPU's cache


class BlockFormat(NamedTuple):
    """How one tensor type lays out its numbers."""

    layout: np.dtype  # of a block's bytes
    formula: Callable[[np.ndarray], np.ndarray] | None  # [B] of layout -> [B, num_elements] float32; None: as they are


def dequantize(data: ByteArray, type_name: str, num_elements: int) -> Float32Array:
    """The float32 numbers, [num_elements], that the bytes of a tensor of type `type_name` stand for.

    Those that are float32 already are `data` itself, without a copy if it is aligned. Raises ValueError for a type that
    is not in BLOCK_FORMATS, naming those that are, and for a wrong number of bytes.
    """
    if type_name not in BLOCK_FORMATS:
        raise ValueError(f"tensor type {type_name} is not supported; octavo reads {', '.join(BLOCK_FORMATS)}")
    block, block_len = BLOCK_FORMATS[type_name], BLOCK_SIZES[type_name].num_elements
    if num_elements % block_len or data.nbytes != num_bytes(type_name, num_elements):
        raise ValueError(f"{num_elements} elements of type {type_name} do not fill {data.nbytes} bytes exactly")
    if block.formula is None:
        return np.require(data.view("<f4"), requirements="A")
    blocks = data.view(block.layout)
    out = np.empty((len(blocks), block_len), np.float32)
    step = _ELEMENTS_AT_ONCE // block_len
    with np.errstate(invalid="ignore", over="ignore"):  # a damaged scale may be infinite or no number
        for start in range(0, len(blocks), step):
            part = slice(start, start + step)
            out[part] = block.formula(blocks[part])
    return out.reshape(num_elements)


def _f16(blocks: np.ndarray) -> np.ndarray:
    return _column(blocks["x"])


def _bf16(blocks: np.ndarray) -> np.ndarray:
    return (blocks["x"].astype(np.uint32) << 16).view(np.float32)[:, None]


def _q8_0(blocks: np.ndarray) -> np.ndarray:
    return blocks["q"].astype(np.float32) * _column(blocks["d"])


def _q4_0(blocks: np.ndarray) -> np.ndarray:
    return _column(blocks["d"]) * (_nibbles(blocks["q"]) - np.float32(8))


def _q4_1(blocks: np.ndarray) -> np.ndarray:
    return _column(blocks["d"]) * _nibbles(blocks["q"]) + _column(blocks["m"])


def _q5_0(blocks: np.ndarray) -> np.ndarray:
    return _column(blocks["d"]) * (_nibbles(blocks["q"]) + _fifth_bits(blocks["h"]) - np.float32(16))


def _q5_1(blocks: np.ndarray) -> np.ndarray:
    return _column(blocks["d"]) * (_nibbles(blocks["q"]) + _fifth_bits(blocks["h"])) + _column(blocks["m"])


def _q4_k(blocks: np.ndarray) -> np.ndarray:
    scale, minimum = _scales_and_minima(blocks)
    return _flat(scale * _nibbles_by_32(blocks["q"]) - minimum)


def _q5_k(blocks: np.ndarray) -> np.ndarray:
    scale, minimum = _scales_and_minima(blocks)
    # Byte i of h holds the fifth bit of element i of all eight sub-blocks, lowest bit first.
    fifth = blocks["h"][:, None, :] >> np.arange(8, dtype=np.uint8)[:, None] & 1  # [B, 8, 32]
    return _flat(scale * (_nibbles_by_32(blocks["q"]) + (fifth << 4)) - minimum)


def _q6_k(blocks: np.ndarray) -> np.ndarray:
    # The block is two halves of 128: 64 bytes of low nibbles, then the same bytes' high nibbles; 32 bytes of
    # four bit pairs each, lowest first.
    low = blocks["q"].reshape(-1, 2, 1, 64) >> np.array([[0], [4]], np.uint8) & 15  # [B, 2, 2, 64]
    high = blocks["h"].reshape(-1, 2, 1, 32) >> np.array([[0], [2], [4], [6]], np.uint8) & 3  # [B, 2, 4, 32]
    q = low.reshape(-1, 16, 16) | high.reshape(-1, 16, 16) << 4
    scale = _column(blocks["d"]) * blocks["s"].astype(np.float32)  # [B, 16]
    return _flat(scale[:, :, None] * (q.astype(np.float32) - np.float32(32)))


def _mxfp4(blocks: np.ndarray) -> np.ndarray:
    half_scale = np.ldexp(np.float32(1), blocks["e"].astype(np.int32) - 128)
    return _column(half_scale) * (2 * E2M1)[_nibbles(blocks["q"]).astype(np.uint8)]


def _column(x: np.ndarray) -> np.ndarray:
    """[B] -> [B, 1] in float32."""
    return x.astype(np.float32)[:, None]


def _flat(x: np.ndarray) -> np.ndarray:
    """[B, ...] -> [B, elements]."""
    return x.reshape(len(x), -1)


def _nibbles(q: np.ndarray) -> np.ndarray:
    """[B, n] bytes -> [B, 2n] float32: all low halves, then all high halves."""
    return np.concatenate([q & 15, q >> 4], axis=1).astype(np.float32)


def _nibbles_by_32(q: np.ndarray) -> np.ndarray:
    """[B, 128] bytes -> [B, 8, 32] float32: of each 32 bytes the low halves, then the high halves."""
    halves = q.reshape(-1, 4, 1, 32) >> np.array([[0], [4]], np.uint8) & 15  # [B, 4, 2, 32]
    return halves.reshape(-1, 8, 32).astype(np.float32)


def _fifth_bits(h: np.ndarray) -> np.ndarray:
    """[B] 32-bit words -> [B, 32] float32: 16 where bit i of the word is set."""
    return ((h[:, None] >> np.arange(32, dtype=np.uint32) & 1) << 4).astype(np.float32)


def _scales_and_minima(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The scale and minimum of each of the eight sub-blocks, [B, 8, 1] both.

    Twelve bytes hold eight 6-bit scales and minima: bytes 0-3 and 4-7 those of the first four sub-blocks, and in
    their upper two bits the top of the last four's; bytes 8-11 the last four's low halves.
    """
    scale_bytes, minimum_bytes, low_halves = np.split(blocks["s"], 3, axis=1)  # [B, 4] each
    scale = np.concatenate([scale_bytes & 63, low_halves & 15 | scale_bytes >> 2 & 48], axis=1)
    minimum = np.concatenate([minimum_bytes & 63, low_halves >> 4 | minimum_bytes >> 2 & 48], axis=1)
    return (
        (_column(blocks["d"]) * scale.astype(np.float32))[:, :, None],
        (_column(blocks["m"]) * minimum.astype(np.float32))[:, :, None],
    )


def _layout(**fields: str) -> np.dtype:
    return np.dtype(list(fields.items()))


# d: scale, e: its exponent, m: minimum, s: scales of sub-blocks, q: low bits, h: high bits.
BLOCK_FORMATS = {
    "F32": BlockFormat(_layout(x="<f4"), None),
    "F16": BlockFormat(_layout(x="<f2"), _f16),
    "BF16": BlockFormat(_layout(x="<u2"), _bf16),
    "Q8_0": BlockFormat(_layout(d="<f2", q="32i1"), _q8_0),
    "Q4_0": BlockFormat(_layout(d="<f2", q="16u1"), _q4_0),
    "Q4_1": BlockFormat(_layout(d="<f2", m="<f2", q="16u1"), _q4_1),
    "Q5_0": BlockFormat(_layout(d="<f2", h="<u4", q="16u1"), _q5_0),
    "Q5_1": BlockFormat(_layout(d="<f2", m="<f2", h="<u4", q="16u1"), _q5_1),
    "MXFP4": BlockFormat(_layout(e="u1", q="16u1"), _mxfp4),
    "Q4_K": BlockFormat(_layout(d="<f2", m="<f2", s="12u1", q="128u1"), _q4_k),
    "Q5_K": BlockFormat(_layout(d="<f2", m="<f2", s="12u1", h="32u1", q="128u1"), _q5_k),
    "Q6_K": BlockFormat(_layout(q="128u1", h="64u1", s="16i1", d="<f2"), _q6_k),
}
