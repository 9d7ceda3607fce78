"""The KV cache of the native backend."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from octavo.backends.ops import KVLayer, KVShape


class NativeKVCache:
    """The K and V blocks of all layers, in the extension's memory and layout (csrc/kv_cache.h).

    Raises ValueError for a shape that the kernels do not take, MemoryError if it does not fit.
    """

    def __init__(self, extension: ModuleType, pool: Any, shape: KVShape) -> None:
        self._pool = pool
        self._cache = extension.KVCache(
            pool,
            num_layers=shape.num_layers,
            num_blocks=shape.num_blocks,
            block_size=shape.block_size,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            dtype=shape.dtype,
        )
        self.layers: Sequence[KVLayer] = [self._cache.layer(i) for i in range(shape.num_layers)]

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy K and V of every layer from block to block, pair after pair in the given order."""
        self._cache.copy_blocks(self._pool, np.array(pairs, np.int32).ravel())
