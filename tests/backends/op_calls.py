"""Calling a single op of a backend, by way of a model that does nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from octavo.backends.ops import Backend, Float32Array, KVCache, KVShape, Ops, StepBatch

_NONE = np.zeros(0, np.int32)
EMPTY_BATCH = StepBatch(_NONE, _NONE, _NONE, np.zeros(1, np.int32), _NONE, np.zeros((0, 0), np.int32), _NONE)
SMALL_KV = KVShape(num_layers=1, num_blocks=1, block_size=16, num_kv_heads=1, head_dim=8)


@dataclass(frozen=True)
class _Call:
    """A model whose forward pass is `function`."""

    function: Callable[[Ops, Any, KVCache], Any]

    def forward(self, ops: Ops, batch: Any, kv: KVCache) -> Any:
        return self.function(ops, batch, kv)


def call(backend: Backend, function: Callable[[Ops], Any]) -> Float32Array:
    """What `function` makes of the ops of this backend."""
    step = backend.prepare(_Call(lambda ops, batch, kv: function(ops)), backend.allocate_kv(SMALL_KV))
    return step.run(EMPTY_BATCH)


def call_with_kv(
    backend: Backend, kv: KVCache, batch: StepBatch, function: Callable[[Ops, Any, KVCache], Any]
) -> Float32Array:
    """What `function` makes of the ops of this backend, a batch and a cache."""
    return backend.prepare(_Call(function), kv).run(batch)


def normal(rng: np.random.Generator, *shape: int) -> Float32Array:
    """Standard normal float32 numbers."""
    return rng.standard_normal(shape, np.float32)
