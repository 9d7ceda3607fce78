"""The op table on the kernels of the extension. What each op promises is in `octavo.backends.ops`."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from octavo.backends.native.arrays import empty
from octavo.backends.ops import AttentionParams, Float32Array, Int32Array, KVLayer, RotaryTable, StepBatch


class NativeOps:
    """Computes each op at once, on all threads of `pool`.

    Arrays are numpy arrays whose rows are contiguous; the columns of a wider array are such, so `split` copies nothing.
    A weight is an extension.LinearWeight, the float32 array of a norm, or a `RotaryTable`.
    """

    def __init__(self, extension: ModuleType, pool: Any) -> None:
        self._extension = extension
        self._pool = pool

    def embed(self, token_ids: Int32Array, weight: Any) -> Float32Array:
        """Rows of the embedding."""
        out = empty(len(token_ids), weight.num_inputs)
        self._extension.embed(self._pool, token_ids, weight, out)
        return out

    def linear(self, x: Float32Array, weight: Any) -> Float32Array:
        """x @ weight.T + bias."""
        out = empty(len(x), weight.num_outputs)
        self._extension.linear(self._pool, x, weight, out)
        return out

    def add(self, x: Float32Array, y: Float32Array) -> Float32Array:
        """x + y."""
        out = empty(*x.shape)
        self._extension.add(self._pool, x, y, out)
        return out

    def rms_norm(self, x: Float32Array, weight: Float32Array, eps: float) -> Float32Array:
        """Normalize groups of len(weight) columns."""
        out = empty(*x.shape)
        self._extension.rms_norm(self._pool, x, weight, eps, out)
        return out

    def split(self, x: Float32Array, widths: Sequence[int]) -> tuple[Float32Array, ...]:
        """Views of the columns."""
        if sum(widths) != x.shape[1]:
            raise ValueError(f"widths {list(widths)} sum to {sum(widths)}, but x has {x.shape[1]} columns")
        ends = [sum(widths[: i + 1]) for i in range(len(widths))]
        return tuple(x[:, end - width : end] for width, end in zip(widths, ends, strict=True))

    def rotary(self, x: Float32Array, positions: Int32Array, table: RotaryTable) -> Float32Array:
        """Rotate each head by its position."""
        out = empty(*x.shape)
        self._extension.rotary(self._pool, x, positions, table.cos, table.sin, out)
        return out

    def write_kv(self, k: Float32Array, v: Float32Array, kv: KVLayer, slot_mapping: Int32Array) -> None:
        """Store each token's K and V in its slot."""
        self._extension.write_kv(self._pool, k, v, kv, slot_mapping)

    def attend(self, q: Float32Array, kv: KVLayer, batch: StepBatch, params: AttentionParams) -> Float32Array:
        """Causal attention of every query over its own sequence's blocks."""
        out = empty(*q.shape)
        batch_arrays = (batch.query_start_loc, batch.positions, batch.block_table)
        self._extension.attend(self._pool, q, kv, *batch_arrays, params, out)
        return out

    def silu_mul(self, gate_up: Float32Array) -> Float32Array:
        """silu(gate) * up."""
        out = empty(len(gate_up), gate_up.shape[1] // 2)
        self._extension.silu_mul(self._pool, gate_up, out)
        return out

    def gather_rows(self, x: Float32Array, rows: Int32Array) -> Float32Array:
        """x[rows]."""
        out = empty(len(rows), x.shape[1])
        self._extension.gather_rows(self._pool, x, rows, out)
        return out
