"""How large a model's KV cache is."""

from __future__ import annotations

from octavo.backends.ops import KVShape
from octavo.config import BLOCK_SIZE, ModelConfig


def kv_shape(model: ModelConfig, num_blocks: int, kv_cache_dtype: str) -> KVShape:
    """The shape of `num_blocks` blocks of K and V of every layer."""
    return KVShape(
        num_layers=model.num_layers,
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        dtype=kv_cache_dtype,
    )
