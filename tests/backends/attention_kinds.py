"""What a cache may be stored as, and what attention over it may be."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from octavo.backends.ops import AttentionParams, Backend, Float32Array, KVCache
from tests.backends.paged_sequences import Heads, PagedSequence, expected_attention, fill_with_nan
from tests.backends.stored_tensors import stored

DTYPES = ("float32", "bfloat16", "int8")


@dataclass(frozen=True)
class AttentionKind:
    """One of the ways to attend."""

    dtype: str = "float32"
    window: int | None = None
    soft_cap: float | None = None
    has_sinks: bool = False

    def params(self, backend: Backend, heads: Heads) -> AttentionParams:
        """The parameters as this backend takes them."""
        sinks = backend.load_weight([stored(sink_values(heads))]) if self.has_sinks else None
        return dataclasses.replace(heads.params, window=self.window, soft_cap=self.soft_cap, sinks=sinks)

    def poisoned_kv(self, backend: Backend, heads: Heads, num_blocks: int, block_size: int = 16) -> KVCache:
        """A cache full of NaN."""
        shape = heads.kv_shape(num_blocks, block_size, self.dtype)
        kv = backend.allocate_kv(shape)
        fill_with_nan(backend, kv, shape)
        return kv

    def expected(self, backend: Backend, heads: Heads, sequence: PagedSequence) -> np.ndarray:
        """What each token of the sequence should get, [length, heads * D]."""
        sinks = sink_values(heads) if self.has_sinks else None
        return expected_attention(heads, sequence, self.dtype, self.params(backend, heads), sinks)


KINDS = {
    "float32": AttentionKind(),
    "bfloat16": AttentionKind("bfloat16"),
    "int8": AttentionKind("int8"),
    "window": AttentionKind(window=75),
    "all in bfloat16": AttentionKind("bfloat16", window=600, soft_cap=2.0, has_sinks=True),
    "all in int8": AttentionKind("int8", window=20, soft_cap=2.0, has_sinks=True),
}


def sink_values(heads: Heads) -> Float32Array:
    """A number for each head: some count for nothing, some for about as much as a key, one for more than all keys."""
    return np.resize(np.array([0.5, -90, 3, 12], np.float32), heads.num_heads)
