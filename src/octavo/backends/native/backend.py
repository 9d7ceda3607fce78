"""The native backend: the op table in C++, on the CPU, in float32."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from octavo.backends.native.arrays import float_array
from octavo.backends.native.isa import load_extension
from octavo.backends.native.kv_cache import NativeKVCache
from octavo.backends.native.operations import NativeOps, RotaryTable
from octavo.backends.ops import (
    Float32Array,
    KVCache,
    KVShape,
    Model,
    SampledBatch,
    SamplingBatch,
    StepBatch,
    Weight,
)


class NativeStep:
    """A model and its cache; running it calls the model's `forward`, op by op."""

    def __init__(self, extension: ModuleType, pool: Any, model: Model, kv: KVCache) -> None:
        self._extension = extension
        self._pool = pool
        self._ops = NativeOps(extension, pool)
        self._model = model
        self._kv = kv

    def run(self, batch: StepBatch) -> Float32Array:
        """Run one step; write its KV and return the logits of `batch.logits_rows`, [S, V]."""
        return self._model.forward(self._ops, batch, self._kv)

    def sample(self, logits: Float32Array, sampling: SamplingBatch) -> SampledBatch:
        """Choose one token a row, without sorting the vocabulary; what is undefined is NaN, 0 or -1."""
        num_rows, k = len(logits), max([0, *sampling.num_logprobs.tolist()])
        sampled = SampledBatch(
            token_ids=np.empty(num_rows, np.int32),
            logprob=np.full(num_rows, np.nan, np.float32),
            rank=np.zeros(num_rows, np.int32),
            top_ids=np.full((num_rows, k), -1, np.int32),
            top_logprobs=np.full((num_rows, k), np.nan, np.float32),
        )
        self._extension.sample(self._pool, logits, sampling, sampled)
        return sampled


class NativeBackend:
    """Runs on `num_threads` threads, of which the caller is one.

    Raises ImportError if the extension was not built, ValueError if num_threads is not positive.
    """

    kv_itemsize = 4  # float32

    def __init__(self, num_threads: int) -> None:
        self._extension = load_extension()
        self._pool: Any = self._extension.ThreadPool(num_threads)

    def load_weight(self, tensor: Float32Array, bias: Float32Array | None = None) -> Weight:
        """Pack a parameter: [N, K] for `linear` and `embed` alike, [N] for `rms_norm`."""
        if tensor.ndim == 1:
            if bias is not None:
                raise ValueError(f"a weight of one dimension, here [{len(tensor)}], has no bias")
            return float_array(tensor)
        return self._extension.LinearWeight(
            self._pool, float_array(tensor), None if bias is None else float_array(bias)
        )

    def rotary_table(self, cos: Float32Array, sin: Float32Array) -> Weight:
        """Keep the cosines and sines of every position."""
        return RotaryTable(float_array(cos), float_array(sin))

    def allocate_kv(self, shape: KVShape) -> KVCache:
        """Reserve and touch the memory of a KV cache."""
        return NativeKVCache(self._extension, self._pool, shape)

    def prepare(self, model: Model, kv: KVCache) -> NativeStep:
        """Make the model runnable over this cache."""
        return NativeStep(self._extension, self._pool, model, kv)
