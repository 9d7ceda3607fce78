"""What goes into a model's linear layers while it reads a text: what a quantizer must not disturb."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from octavo.backends.native.backend import NativeBackend
from octavo.backends.ops import Array, Float32Array, KVCache, Model, Ops, StepBatch, Weight
from octavo.config import BLOCK_SIZE
from octavo.engine import host
from octavo.engine.tokenizer import Tokenizer
from octavo.models.registry import build_model
from octavo.weights.checkpoint import Checkpoint
from octavo.worker.kv_cache import kv_shape

_LINEARS = 4  # that a block calls, those of one input merged


@dataclass(frozen=True, slots=True)
class BlockInputs:
    """The inputs of one block's linear layers, [T, K] each."""

    qkv_proj: Float32Array
    o_proj: Float32Array
    gate_up_proj: Float32Array
    down_proj: Float32Array


def collect_inputs(checkpoint: Checkpoint, text: str, *, max_tokens: int) -> list[BlockInputs]:
    """Read the first tokens of the text, in float32, and keep what goes into each block's layers.

    Takes memory for the model in float32 and for `max_tokens` rows of all inputs.
    """
    token_ids = Tokenizer(checkpoint.tokenizer_spec).encode(text, add_special_tokens=False)[:max_tokens]
    backend = NativeBackend(host.num_usable_cpus(), dtype="float32", is_recorded=False)
    model = _ListeningModel(build_model(checkpoint.config, checkpoint.tensors, backend, max_tokens))
    kv = backend.allocate_kv(kv_shape(checkpoint.config, -(-len(token_ids) // BLOCK_SIZE), "float32"))
    backend.prepare(model, kv).run(_one_sequence(token_ids))
    blocks = range(0, _LINEARS * checkpoint.config.num_layers, _LINEARS)
    return [BlockInputs(*model.inputs[i : i + _LINEARS]) for i in blocks]


def _one_sequence(token_ids: list[int]) -> StepBatch:
    """A step over a sequence from its beginning, of which only the last token's logits are wanted."""
    positions = np.arange(len(token_ids), dtype=np.int32)
    return StepBatch(
        input_ids=np.array(token_ids, np.int32),
        positions=positions,
        slot_mapping=positions,
        query_start_loc=np.array([0, len(token_ids)], np.int32),
        seq_lens=np.array([len(token_ids)], np.int32),
        block_table=np.arange(-(-len(token_ids) // BLOCK_SIZE), dtype=np.int32)[None],
        logits_rows=positions[-1:],
    )


class _ListeningModel:
    """A model that keeps what its linear layers are given, call after call."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.inputs: list[Float32Array] = []

    def forward(self, ops: Ops, batch: Any, kv: KVCache) -> Array:
        """See backends.ops.Model."""
        listening: Any = _ListeningOps(ops, self.inputs)
        return self._model.forward(listening, batch, kv)


class _ListeningOps:
    """The op table `ops`, of which `linear` keeps its inputs."""

    def __init__(self, ops: Ops, inputs: list[Float32Array]) -> None:
        self._ops = ops
        self._inputs = inputs

    def linear(self, x: Array, weight: Weight) -> Array:
        self._inputs.append(np.array(x))
        return self._ops.linear(x, weight)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)
