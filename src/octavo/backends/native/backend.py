"""The native backend: the op table in C++, on the CPU. Activations are float32, weights what `weight_kinds` says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from octavo.backends.native.arrays import float_array
from octavo.backends.native.isa import load_extension
from octavo.backends.native.kv_cache import NativeKVCache
from octavo.backends.native.operations import NativeOps
from octavo.backends.native.plan import RecordedModel
from octavo.backends.native.stored_parts import parts_to_pack
from octavo.backends.native.weight_kinds import WHOLE_KINDS, choose_kind
from octavo.backends.ops import (
    Float32Array,
    KVCache,
    KVShape,
    Model,
    RotaryTable,
    SampledBatch,
    SamplingBatch,
    StepBatch,
    StoredTensor,
    Weight,
)


class NativeStep:
    """A model over its cache: `forward` computes a step's logits."""

    def __init__(self, extension: ModuleType, pool: Any, forward: Callable[[StepBatch], Float32Array]) -> None:
        self._extension = extension
        self._pool = pool
        self._forward = forward

    def run(self, batch: StepBatch) -> Float32Array:
        """Run one step; write its KV and return the logits of `batch.logits_rows`, [S, V]."""
        return self._forward(batch)

    def sample(self, logits: Float32Array, sampling: SamplingBatch) -> SampledBatch:
        """Choose one token a row, without sorting the vocabulary; what is undefined is NaN, 0 or -1."""
        sampled = SampledBatch.blank(sampling.num_logprobs)
        self._extension.sample(self._pool, logits, sampling, sampled)
        return sampled


class NativeBackend:
    """Runs on `num_threads` threads, of which the caller is one.

    `dtype` is as in EngineConfig, `quantization` as its `requantization`, `are_layers_quantized` as in Checkpoint,
    `has_float_activations` as an activation_dtype of "float". A model is recorded once and its plan replayed in each
    step; unless `is_recorded`, each step calls the model, which computes op by op, to the same bits. Raises ImportError
    if the extension was not built, ValueError if num_threads is not positive.
    """

    def __init__(
        self,
        num_threads: int,
        *,
        dtype: str = "auto",
        quantization: str | None = None,
        are_layers_quantized: bool = False,
        has_float_activations: bool = False,
        is_recorded: bool = True,
    ) -> None:
        self._extension = load_extension()
        self._pool: Any = self._extension.ThreadPool(num_threads)
        self._dtype = dtype
        self._quantization = quantization
        self._are_layers_quantized = are_layers_quantized
        self._has_float_activations = has_float_activations
        self._is_recorded = is_recorded
        self.weight_bytes_by_kind: dict[str, int] = Counter()

    def load_weight(
        self, parts: Sequence[StoredTensor], bias: Float32Array | None = None, *, is_vocabulary: bool = False
    ) -> Weight:
        """Pack a parameter: a matrix from the bytes of its file, a vector as float32."""
        if len(parts[0].shape) == 1:
            return self._load_vector(parts, bias)
        kind = choose_kind(
            [part.format for part in parts],
            dtype=self._dtype,
            quantization=self._quantization,
            is_vocabulary=is_vocabulary,
            are_layers_quantized=self._are_layers_quantized,
        )
        if self._has_float_activations and kind in WHOLE_KINDS:
            kind = "float32"
        stored, order = parts_to_pack(parts, kind)
        weight = self._extension.LinearWeight.pack(
            self._pool, kind, stored, None if bias is None else float_array(bias), order
        )
        self.weight_bytes_by_kind[kind] += weight.num_bytes
        return weight

    def _load_vector(self, parts: Sequence[StoredTensor], bias: Float32Array | None) -> Float32Array:
        if bias is not None:
            raise ValueError(f"a weight of one dimension, here {list(parts[0].shape)}, has no bias")
        vector = np.concatenate([part.to_float32() for part in parts])  # a copy: it must not keep the file open
        self.weight_bytes_by_kind["float32"] += vector.nbytes
        return vector

    def rotary_table(self, cos: Float32Array, sin: Float32Array) -> Weight:
        """Keep the cosines and sines of every position."""
        return RotaryTable(float_array(cos), float_array(sin))

    def allocate_kv(self, shape: KVShape) -> KVCache:
        """Reserve the memory of a KV cache; it becomes resident while others work."""
        return NativeKVCache(self._extension, self._pool, shape)

    def prepare(self, model: Model, kv: KVCache) -> NativeStep:
        """Make the model runnable over this cache."""
        if self._is_recorded:
            return NativeStep(self._extension, self._pool, RecordedModel(self._extension, self._pool, model, kv))
        ops = NativeOps(self._extension, self._pool)
        return NativeStep(self._extension, self._pool, lambda batch: model.forward(ops, batch, kv))
