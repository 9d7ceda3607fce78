"""Where K and V live: one row a slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from octavo.backends.ops import PAD_SLOT, Float32Array, Int32Array, KVLayer, KVShape


def round_to_bfloat16(x: Float32Array) -> Float32Array:
    """The nearest numbers whose float32 has a lower half of zeros, of two the one whose upper half is even."""
    bits = x.view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return np.where(np.isnan(x), x, rounded.astype(np.uint32).view(np.float32))


def round_to_int8(x: Float32Array) -> Float32Array:
    """Multiples, from -127 to 127, of one scale for all numbers of the last axis."""
    scale = np.abs(x).max(axis=-1, keepdims=True) / np.float32(127)
    scale[~np.isfinite(scale)] = np.nan
    is_zero = scale < np.finfo(np.float32).tiny
    codes = np.rint(x / np.where(is_zero, np.float32(1), scale))
    return np.where(is_zero, np.float32(0), codes * scale)


ROUNDING_BY_DTYPE = {"float32": lambda x: x, "bfloat16": round_to_bfloat16, "int8": round_to_int8}


@dataclass(frozen=True, slots=True)
class KVBlocks:
    """K and V of one layer, as float32 that holds what the cache's dtype can."""

    keys: Float32Array  # [num_blocks * block_size, KV heads, D]
    values: Float32Array  # as keys
    block_size: int
    dtype: str

    def write(self, k: Float32Array, v: Float32Array, slot_mapping: Int32Array) -> None:
        """Store row t of `k` and `v`, [T, KV heads * D] both, in slot `slot_mapping[t]`, unless that is PAD_SLOT."""
        _, num_kv_heads, head_dim = self.keys.shape
        is_real = slot_mapping != PAD_SLOT
        for stored, x in ((self.keys, k), (self.values, v)):
            heads = x[is_real].reshape(-1, num_kv_heads, head_dim)
            stored[slot_mapping[is_real]] = ROUNDING_BY_DTYPE[self.dtype](heads)

    def read(self, block_ids: Int32Array, begin: int, end: int) -> tuple[Float32Array, Float32Array]:
        """K and V of tokens [begin, end) of the sequence that owns `block_ids`, [end - begin, KV heads, D] both."""
        place = np.arange(begin, end)
        slots = block_ids[place // self.block_size] * self.block_size + place % self.block_size
        return self.keys[slots], self.values[slots]


class ReferenceKVCache:
    """The K and V blocks of all layers."""

    def __init__(self, shape: KVShape) -> None:
        if shape.dtype not in ROUNDING_BY_DTYPE:
            raise ValueError(
                f"the dtype of the KV cache is {shape.dtype}, expected one of {', '.join(ROUNDING_BY_DTYPE)}"
            )
        self._block_size = shape.block_size
        rows = (shape.num_blocks * shape.block_size, shape.num_kv_heads, shape.head_dim)
        # NaN, so that whoever reads a slot that nobody wrote gets to know it.
        self.layers: Sequence[KVLayer] = [
            KVBlocks(_nan(*rows), _nan(*rows), shape.block_size, shape.dtype) for _ in range(shape.num_layers)
        ]

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy K and V of every layer from block to block, pair after pair in the given order."""
        for source, target in pairs:
            for layer in self.layers:
                for rows in (layer.keys, layer.values):
                    blocks = rows.reshape(-1, self._block_size, *rows.shape[1:])
                    blocks[target] = blocks[source]


def _nan(*shape: int) -> Float32Array:
    return np.full(shape, np.nan, np.float32)
