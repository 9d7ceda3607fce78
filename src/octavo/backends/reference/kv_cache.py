"""Where K and V live: one row a slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from octavo.backends.ops import PAD_SLOT, Float32Array, Int32Array, KVLayer, KVShape


@dataclass(frozen=True, slots=True)
class KVBlocks:
    """K and V of one layer."""

    keys: Float32Array  # [num_blocks * block_size, KV heads, D]
    values: Float32Array  # as keys
    block_size: int

    def write(self, k: Float32Array, v: Float32Array, slot_mapping: Int32Array) -> None:
        """Store row t of `k` and `v`, [T, KV heads * D] both, in slot `slot_mapping[t]`, unless that is PAD_SLOT."""
        _, num_kv_heads, head_dim = self.keys.shape
        is_real = slot_mapping != PAD_SLOT
        self.keys[slot_mapping[is_real]] = k[is_real].reshape(-1, num_kv_heads, head_dim)
        self.values[slot_mapping[is_real]] = v[is_real].reshape(-1, num_kv_heads, head_dim)

    def read(self, block_ids: Int32Array, length: int) -> tuple[Float32Array, Float32Array]:
        """K and V of the first `length` tokens of the sequence that owns `block_ids`, [length, KV heads, D] both."""
        place = np.arange(length)
        slots = block_ids[place // self.block_size] * self.block_size + place % self.block_size
        return self.keys[slots], self.values[slots]


class ReferenceKVCache:
    """The K and V blocks of all layers."""

    def __init__(self, shape: KVShape) -> None:
        self._block_size = shape.block_size
        rows = (shape.num_blocks * shape.block_size, shape.num_kv_heads, shape.head_dim)
        # NaN, so that whoever reads a slot that nobody wrote gets to know it.
        self.layers: Sequence[KVLayer] = [
            KVBlocks(np.full(rows, np.nan, np.float32), np.full(rows, np.nan, np.float32), shape.block_size)
            for _ in range(shape.num_layers)
        ]

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy K and V of every layer from block to block, pair after pair in the given order."""
        for source, target in pairs:
            for layer in self.layers:
                for rows in (layer.keys, layer.values):
                    blocks = rows.reshape(-1, self._block_size, *rows.shape[1:])
                    blocks[target] = blocks[source]
