"""Sequences whose keys and values are known, the steps that attend over them, and what these should give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from octavo.backends.ops import (
    PAD_SLOT,
    AttentionParams,
    Backend,
    Float32Array,
    Int32Array,
    KVCache,
    KVShape,
    StepBatch,
)
from tests.backends.op_calls import call_with_kv, normal

_UNUSED = np.iinfo(np.int32).max  # a block id in the table's unused entries: whoever follows it crashes


@dataclass(frozen=True)
class Heads:
    """How many query and KV heads, of which size."""

    num_heads: int
    num_kv_heads: int
    head_dim: int

    @property
    def params(self) -> AttentionParams:
        """Plain attention."""
        return AttentionParams(self.head_dim**-0.5)

    def kv_shape(self, num_blocks: int, block_size: int = 16, dtype: str = "float32") -> KVShape:
        return KVShape(1, num_blocks, block_size, self.num_kv_heads, self.head_dim, dtype)


@dataclass(frozen=True)
class PagedSequence:
    """Queries, keys and values of `length` tokens, and the blocks that hold the latter two."""

    q: Float32Array  # [length, heads * D]
    k: Float32Array  # [length, KV heads * D]
    v: Float32Array  # as k
    block_ids: Int32Array

    def slots(self, begin: int, end: int, block_size: int) -> Int32Array:
        positions = np.arange(begin, end)
        slots = self.block_ids[positions // block_size] * block_size + positions % block_size
        return slots.astype(np.int32)


@dataclass(frozen=True)
class Chunk:
    """Tokens [begin, end) of a sequence, to be computed in one step."""

    sequence: PagedSequence
    begin: int
    end: int


def make_sequences(
    rng: np.random.Generator, heads: Heads, lengths: Sequence[int], num_blocks: int, block_size: int = 16
) -> list[PagedSequence]:
    """Random sequences in random blocks."""
    free = list(rng.permutation(num_blocks).astype(np.int32))
    sequences = []
    for length in lengths:
        q, k, v = (normal(rng, length, n * heads.head_dim) for n in (heads.num_heads, *2 * [heads.num_kv_heads]))
        block_ids = np.array([free.pop() for _ in range(-(-length // block_size))], np.int32)
        sequences.append(PagedSequence(q, k, v, block_ids))
    return sequences


def step_batch(chunks: Sequence[Chunk], block_size: int) -> StepBatch:
    """The step that computes these chunks."""
    lengths = [chunk.end - chunk.begin for chunk in chunks]
    block_table = np.full((len(chunks), max(len(chunk.sequence.block_ids) for chunk in chunks) + 3), _UNUSED, np.int32)
    for row, chunk in zip(block_table, chunks, strict=True):
        num_used = -(-chunk.end // block_size)
        row[:num_used] = chunk.sequence.block_ids[:num_used]
    return StepBatch(
        input_ids=np.zeros(sum(lengths), np.int32),
        positions=np.concatenate([np.arange(chunk.begin, chunk.end) for chunk in chunks]).astype(np.int32),
        slot_mapping=np.concatenate([chunk.sequence.slots(chunk.begin, chunk.end, block_size) for chunk in chunks]),
        query_start_loc=np.cumsum([0, *lengths]).astype(np.int32),
        seq_lens=np.array([chunk.end for chunk in chunks], np.int32),
        block_table=block_table,
        logits_rows=np.zeros(0, np.int32),
    )


def attend(
    backend: Backend, kv: KVCache, chunks: Sequence[Chunk], params: AttentionParams, block_size: int = 16
) -> list[Float32Array]:
    """Write the chunks' keys and values, attend with their queries; what comes out for each chunk."""
    batch = step_batch(chunks, block_size)
    q, k, v = (
        np.concatenate([getattr(chunk.sequence, name)[chunk.begin : chunk.end] for chunk in chunks]) for name in "qkv"
    )

    def layer(ops, batch, kv):
        ops.write_kv(k, v, kv.layers[0], batch.slot_mapping)
        return ops.attend(q, kv.layers[0], batch, params)

    out = call_with_kv(backend, kv, batch, layer)
    return np.split(out, batch.query_start_loc[1:-1])


def attend_in_chunks(backend: Backend, kv: KVCache, chunk: Chunk, size: int, params: AttentionParams) -> Float32Array:
    """As `attend` with one chunk, in steps of `size` tokens."""
    begins = range(chunk.begin, chunk.end, size)
    parts = [
        attend(backend, kv, [Chunk(chunk.sequence, begin, min(begin + size, chunk.end))], params)[0] for begin in begins
    ]
    return np.concatenate(parts)


def expected_attention(
    heads: Heads, sequence: PagedSequence, dtype: str, params: AttentionParams, sinks: Float32Array | None = None
) -> np.ndarray:
    """What each token gets, in float64, from the keys and values that a cache of `dtype` holds. [length, heads * D]

    `sinks` [heads] are the numbers that `params` has a backend's weight of.
    """
    group = heads.num_heads // heads.num_kv_heads
    q = sequence.q.astype(np.float64).reshape(len(sequence.q), -1, heads.head_dim)
    k, v = (
        np.repeat(rounded(x.reshape(len(q), -1, heads.head_dim), dtype), group, axis=1)
        for x in (sequence.k, sequence.v)
    )
    scores = params.scale * np.einsum("qhd,khd->hqk", q, k)
    if params.soft_cap is not None:
        scores = params.soft_cap * np.tanh(scores / params.soft_cap)
    distance = np.arange(len(q))[:, None] - np.arange(len(q))
    scores[:, (distance < 0) | (distance >= (params.window or len(q)))] = -np.inf
    weights = np.exp(scores)
    total = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total += np.exp(sinks.astype(np.float64))[:, None, None]
    return np.einsum("hqk,khd->qhd", weights / total, v).reshape(len(q), -1)


def rounded(x: Float32Array, dtype: str) -> np.ndarray:
    """The float64 numbers that a cache holds in place of x, [tokens, KV heads, D]."""
    if dtype == "bfloat16":
        mantissa, exponent = np.frexp(x.astype(np.float64))
        return np.ldexp(np.rint(mantissa * 2**8), exponent - 8)
    if dtype == "int8":
        scale = np.abs(x).max(axis=-1, keepdims=True) / np.float32(127)
        return np.rint(x / scale).astype(np.float64) * scale
    return x.astype(np.float64)


def fill_with_nan(backend: Backend, kv: KVCache, shape: KVShape) -> None:
    """Write NaN to every slot."""
    slots = np.arange(shape.num_blocks * shape.block_size, dtype=np.int32)
    nan = np.full((len(slots), shape.num_kv_heads * shape.head_dim), np.nan, np.float32)
    none = np.zeros(0, np.int32)
    batch = StepBatch(none, none, slots, np.zeros(1, np.int32), none, np.zeros((0, 0), np.int32), none)

    def write(ops, batch, kv):
        for layer in kv.layers:
            ops.write_kv(nan, nan, layer, batch.slot_mapping)
        return np.zeros(0, np.float32)

    call_with_kv(backend, kv, batch, write)


def without_slots(batch: StepBatch) -> Int32Array:
    """A slot mapping of the same length in which every token is padding."""
    return np.full_like(batch.slot_mapping, PAD_SLOT)
