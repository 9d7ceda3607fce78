"""The reference backend: the op table in numpy, each op computed when the model asks for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

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
)
from octavo.backends.reference.kv_cache import ReferenceKVCache
from octavo.backends.reference.ops import Parameter, ReferenceOps
from octavo.backends.reference.sampling import sample


class ReferenceStep:
    """A model and its cache; running it calls the model's `forward`."""

    def __init__(self, model: Model, kv: KVCache) -> None:
        self._ops = ReferenceOps()
        self._model = model
        self._kv = kv

    def run(self, batch: StepBatch) -> Float32Array:
        """Run one step; write its KV and return the logits of `batch.logits_rows`, [S, V]."""
        return self._model.forward(self._ops, batch, self._kv)

    def sample(self, logits: Float32Array, sampling: SamplingBatch) -> SampledBatch:
        """Choose one token a row. It sorts, where a fast backend must not."""
        return sample(logits, sampling)


class ReferenceBackend:
    """Slow and obviously right. Weights become float32 arrays, whatever they are in their file; results are float32."""

    def __init__(self) -> None:
        self.weight_bytes_by_kind = {"float32": 0}

    def load_weight(
        self, parts: Sequence[StoredTensor], bias: Float32Array | None = None, *, is_vocabulary: bool = False
    ) -> Parameter:
        """Keep a parameter, all of whose rows are treated alike."""
        tensor = np.concatenate([part.to_float32() for part in parts])
        self.weight_bytes_by_kind["float32"] += tensor.nbytes
        return Parameter(tensor, bias)

    def rotary_table(self, cos: Float32Array, sin: Float32Array) -> RotaryTable:
        """Keep the cosines and sines of every position."""
        return RotaryTable(cos, sin)

    def allocate_kv(self, shape: KVShape) -> ReferenceKVCache:
        """Make a KV cache."""
        return ReferenceKVCache(shape)

    def prepare(self, model: Model, kv: KVCache) -> ReferenceStep:
        """Make the model runnable over this cache."""
        return ReferenceStep(model, kv)
