"""Attention over a paged KV cache."""

from __future__ import annotations

from typing import Any

from octavo.backends.ops import Array, AttentionParams, KVLayer, Ops


class Attention:
    """Causal attention with grouped queries (Ainslie et al. 2023): several query heads share a KV head."""

    def __init__(self, head_dim: int) -> None:
        self._params = AttentionParams(scale=head_dim**-0.5)

    def __call__(self, ops: Ops, q: Array, k: Array, v: Array, batch: Any, kv: KVLayer) -> Array:
        """Keep k and v, [T, KV heads * D] both, and attend with q, [T, heads * D] -> [T, heads * D]."""
        ops.write_kv(k, v, kv, batch.slot_mapping)
        return ops.attend(q, kv, batch, self._params)
