"""The op table in numpy. What each op promises is in `octavo.backends.ops`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from octavo.backends.ops import AttentionParams, Float32Array, Int32Array, RotaryTable, StepBatch
from octavo.backends.reference.kv_cache import KVBlocks


@dataclass(frozen=True, slots=True)
class Parameter:
    """A weight as it is, with the bias that belongs to it."""

    tensor: Float32Array
    bias: Float32Array | None = None


class ReferenceOps:
    """Computes each op at once. Arrays are numpy arrays; weights are `Parameter` and `RotaryTable`."""

    def embed(self, token_ids: Int32Array, weight: Parameter) -> Float32Array:
        """Rows of the embedding."""
        return weight.tensor[token_ids]

    def linear(self, x: Float32Array, weight: Parameter) -> Float32Array:
        """x @ weight.T + bias."""
        out = np.empty((len(x), len(weight.tensor)), np.float32)
        for t, row in enumerate(x):  # one product of matrices would add in an order that depends on the number of rows
            out[t] = weight.tensor @ row
        return out if weight.bias is None else out + weight.bias

    def add(self, x: Float32Array, y: Float32Array) -> Float32Array:
        """x + y."""
        return x + y

    def rms_norm(self, x: Float32Array, weight: Parameter, eps: float) -> Float32Array:
        """x / sqrt(mean(x^2) + eps) * weight over groups of columns."""
        width = len(weight.tensor)
        groups = x.reshape(len(x), x.shape[1] // width, width)  # [T, G, width]; T may be 0
        mean_square = np.mean(groups * groups, axis=-1, keepdims=True)
        return (groups / np.sqrt(mean_square + np.float32(eps)) * weight.tensor).reshape(x.shape)

    def split(self, x: Float32Array, widths: Sequence[int]) -> tuple[Float32Array, ...]:
        """Cut the columns into parts of these widths."""
        if sum(widths) != x.shape[1]:
            raise ValueError(f"widths {list(widths)} sum to {sum(widths)}; the array has {x.shape[1]} columns")
        return tuple(part.copy() for part in np.split(x, np.cumsum(widths)[:-1], axis=1))

    def rotary(self, x: Float32Array, positions: Int32Array, table: RotaryTable) -> Float32Array:
        """Rotate each head by its position."""
        half = table.cos.shape[1]
        first, second = np.split(x.reshape(len(x), -1, 2 * half), 2, axis=-1)  # [T, heads, D / 2] both
        cos, sin = table.cos[positions][:, None], table.sin[positions][:, None]  # [T, 1, D / 2] both
        return np.concatenate((first * cos - second * sin, second * cos + first * sin), axis=-1).reshape(x.shape)

    def write_kv(self, k: Float32Array, v: Float32Array, kv: KVBlocks, slot_mapping: Int32Array) -> None:
        """Store each token's K and V in its slot."""
        kv.write(k, v, slot_mapping)

    def attend(self, q: Float32Array, kv: KVBlocks, batch: StepBatch, params: AttentionParams) -> Float32Array:
        """Causal attention of every query over its own sequence's blocks."""
        _, num_kv_heads, head_dim = kv.keys.shape
        queries = q.reshape(len(q), -1, head_dim)  # [T, heads, D]
        heads_per_kv_head = queries.shape[1] // num_kv_heads
        out = np.empty_like(queries)
        for r in range(batch.num_reqs):
            for t in range(batch.query_start_loc[r], batch.query_start_loc[r + 1]):
                end = batch.positions[t] + 1
                begin = 0 if params.window is None else max(0, end - params.window)
                keys, values = kv.read(batch.block_table[r], begin, end)  # [end - begin, KV heads, D] both
                for head, query in enumerate(queries[t]):
                    kv_head = head // heads_per_kv_head
                    weights = attention_weights(keys[:, kv_head] @ query, head, params)
                    out[t, head] = weights @ values[:, kv_head]
        return out.reshape(q.shape)

    def silu_mul(self, gate_up: Float32Array) -> Float32Array:
        """silu(gate) * up."""
        gate, up = np.split(gate_up, 2, axis=1)
        with np.errstate(over="ignore"):  # exp of a very negative gate is infinite, and silu 0, as it should be
            return gate / (1 + np.exp(-gate)) * up

    def gather_rows(self, x: Float32Array, rows: Int32Array) -> Float32Array:
        """x[rows]."""
        return x[rows]


def attention_weights(products: Float32Array, head: int, params: AttentionParams) -> Float32Array:
    """What each key's value counts for in a query, given the products of that query and the keys. [keys] -> [keys]"""
    scores = products * np.float32(params.scale)
    if params.soft_cap is not None:
        cap = np.float32(params.soft_cap)
        scores = cap * np.tanh(scores / cap)
    if params.sinks is not None:
        scores = np.append(scores, params.sinks.tensor[head])
    weights = np.exp(scores - scores.max())
    return (weights / weights.sum())[: len(products)]
