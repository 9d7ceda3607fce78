"""Recording, rules, arena and plan over random graphs of ops: the same bits as op by op."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.backends.native import plan
from octavo.backends.native.arena import RESULT, last_uses, place
from octavo.backends.native.fusions import apply_rules
from octavo.backends.native.recorder import record
from octavo.backends.native.recording import Attend, Buffer, GatherRows, Linear
from octavo.backends.ops import Array, AttentionParams, Backend, KVCache, KVShape, Ops, StepBatch, Weight
from tests.backends.conftest import NATIVE_NAMES, make_backend
from tests.backends.op_calls import normal
from tests.backends.stored_tensors import stored

HEAD_DIM = 8
WIDTH = 4 * HEAD_DIM  # of every array between two instructions: four query heads, two KV heads
KV_SHAPE = KVShape(num_layers=4, num_blocks=10, block_size=16, num_kv_heads=2, head_dim=HEAD_DIM, dtype="int8")
NUM_IDS = 50
NUM_OUTPUTS = 21


@dataclass(frozen=True)
class Weights:
    """One of each shape."""

    embedding: Weight
    square: Weight
    wide: Weight  # to twice the width
    narrow: Weight  # from a quarter of it
    head: Weight
    norm: Weight
    head_norm: Weight
    sinks: Weight
    rotary: Weight


def make_weights(backend: Backend) -> Weights:
    rng = np.random.default_rng(0)
    angles = normal(rng, 64, HEAD_DIM // 2)

    def pack(*shape: int) -> Weight:
        return backend.load_weight([stored(normal(rng, *shape) / np.float32(4))])

    return Weights(
        embedding=pack(NUM_IDS, WIDTH),
        square=pack(WIDTH, WIDTH),
        wide=pack(2 * WIDTH, WIDTH),
        narrow=pack(WIDTH, WIDTH // 4),
        head=pack(NUM_OUTPUTS, WIDTH),
        norm=pack(WIDTH),
        head_norm=pack(HEAD_DIM),
        sinks=pack(WIDTH // HEAD_DIM),
        rotary=backend.rotary_table(np.cos(angles), np.sin(angles)),
    )


Instruction = tuple[str, int, int]  # an op, and which of the arrays so far it takes


@dataclass(frozen=True)
class RandomModel:
    """Arrays made of earlier ones; the last is gathered and becomes logits."""

    weights: Weights
    instructions: tuple[Instruction, ...]

    def forward(self, ops: Ops, batch: Any, kv: KVCache) -> Array:
        layers = iter(kv.layers)
        arrays = [ops.embed(batch.input_ids, self.weights.embedding)]
        for name, i, j in self.instructions:
            x, y = arrays[i % len(arrays)], arrays[j % len(arrays)]
            arrays.append(ops.add(x, y) if name == "add" else getattr(self, name)(ops, x, batch, layers))
        wide = ops.linear(arrays[-1], self.weights.wide)
        left, _ = ops.split(wide, [WIDTH, WIDTH])
        x, y, z = (ops.gather_rows(a, batch.logits_rows) for a in (arrays[-1], wide, left))
        x = ops.add(ops.add(x, ops.silu_mul(y)), z)
        logits = ops.linear(ops.rms_norm(x, self.weights.norm, 1e-5), self.weights.head)
        ops.add(logits, ops.linear(x, self.weights.head))  # which nobody reads
        return logits

    def linear(self, ops: Ops, x: Array, batch: Any, layers: Any) -> Array:
        return ops.linear(x, self.weights.square)

    def rms_norm(self, ops: Ops, x: Array, batch: Any, layers: Any) -> Array:
        return ops.rms_norm(x, self.weights.norm, 1e-5)

    def head_norm(self, ops: Ops, x: Array, batch: Any, layers: Any) -> Array:
        return ops.rms_norm(x, self.weights.head_norm, 1e-5)

    def silu_mul(self, ops: Ops, x: Array, batch: Any, layers: Any) -> Array:
        return ops.silu_mul(ops.linear(x, self.weights.wide))

    def swap_halves(self, ops: Ops, x: Array, batch: Any, layers: Any) -> Array:
        left, right = ops.split(ops.linear(x, self.weights.wide), [WIDTH, WIDTH])
        return ops.add(right, left)

    def linear_of_some(self, ops: Ops, x: Array, batch: Any, layers: Any) -> Array:
        _, right = ops.split(ops.rms_norm(x, self.weights.norm, 1e-5), [WIDTH // 2, WIDTH // 2])
        some, _ = ops.split(right, [WIDTH // 4, WIDTH // 4])
        return ops.linear(some, self.weights.narrow)

    def attend(self, ops: Ops, x: Array, batch: Any, layers: Any) -> Array:
        kv, weights = next(layers), self.weights
        q, k, v = ops.split(ops.linear(x, weights.wide), [WIDTH, WIDTH // 2, WIDTH // 2])
        q, k = (ops.rotary(ops.rms_norm(a, weights.head_norm, 1e-5), batch.positions, weights.rotary) for a in (q, k))
        ops.write_kv(k, v, kv, batch.slot_mapping)
        return ops.attend(q, kv, batch, AttentionParams(0.3, window=20, soft_cap=3.0, sinks=weights.sinks))


def random_batch(seed: int) -> StepBatch:
    """Whole sequences of 1 to 20 tokens, some or none of whose rows get logits."""
    rng = np.random.default_rng(seed)
    query_lens = rng.integers(1, 21, rng.integers(1, 6))
    positions = np.concatenate([np.arange(n) for n in query_lens]).astype(np.int32)
    block_table = rng.permutation(KV_SHAPE.num_blocks).astype(np.int32).reshape(5, 2)[: len(query_lens)]
    rows = np.repeat(np.arange(len(query_lens)), query_lens)
    return StepBatch(
        input_ids=rng.integers(0, NUM_IDS, len(positions)).astype(np.int32),
        positions=positions,
        slot_mapping=(block_table[rows, positions // 16] * 16 + positions % 16).astype(np.int32),
        query_start_loc=np.cumsum([0, *query_lens]).astype(np.int32),
        seq_lens=query_lens.astype(np.int32),
        block_table=np.ascontiguousarray(block_table),
        logits_rows=rng.choice(len(positions), rng.integers(0, len(positions) + 1)).astype(np.int32),
    )


KINDS: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"quantization": "int8"},
    "int4": {"quantization": "int4"},
}


@cache
def open_backend(
    name: str = NATIVE_NAMES[0], kind: str = "float32", *, is_recorded: bool = True
) -> tuple[Backend, Weights]:
    backend = make_backend(name, is_recorded=is_recorded, **KINDS[kind])
    return backend, make_weights(backend)


NAMES = ["add", "linear", "rms_norm", "head_norm", "silu_mul", "swap_halves", "linear_of_some"]
INSTRUCTIONS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(-4, -1), st.integers(-4, -1)), min_size=1, max_size=12
)


def with_attention(instructions: list[Instruction], places: set[int]) -> tuple[Instruction, ...]:
    """The instructions, those at `places` turned into attention, one layer each."""
    return tuple(("attend", *step[1:]) if i in places else step for i, step in enumerate(instructions))


@settings(max_examples=60, deadline=None)
@given(
    instructions=INSTRUCTIONS,
    places=st.sets(st.integers(0, 11), max_size=KV_SHAPE.num_layers),
    kind=st.sampled_from(list(KINDS)),
    kv_dtype=st.sampled_from(["float32", "bfloat16", "int8"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_plan_computes_what_its_ops_compute(native_name, instructions, places, kind, kv_dtype, seed):
    results = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "build_plan", partial(plan.build_plan, is_poisoned=True))
        for is_recorded in (False, True):
            backend, weights = open_backend(native_name, kind, is_recorded=is_recorded)
            model = RandomModel(weights, with_attention(instructions, places))
            step = backend.prepare(model, backend.allocate_kv(dataclasses.replace(KV_SHAPE, dtype=kv_dtype)))
            results.append([step.run(random_batch(seed + i)).tobytes() for i in range(3)])
    assert results[0] == results[1]


@settings(max_examples=60, deadline=None)
@given(instructions=INSTRUCTIONS, places=st.sets(st.integers(0, 11), max_size=KV_SHAPE.num_layers))
def test_arrays_that_are_alive_share_no_memory(instructions, places):
    backend, weights = open_backend()
    model = RandomModel(weights, with_attention(instructions, places))
    recording = apply_rules(record(model, backend.allocate_kv(KV_SHAPE)))
    slot_by_buffer = place(recording)
    alive: set[Buffer] = set()
    for op, dying in zip(recording.ops, last_uses(recording.ops), strict=True):
        alive.update(array.buffer for array in op.outputs)
        slots = sorted((slot_by_buffer[buffer] for buffer in alive), key=lambda slot: slot.start)
        slots = [slot for slot in slots if slot.start != RESULT]
        assert all(low.start + low.width <= high.start for low, high in itertools.pairwise(slots))
        alive.difference_update(dying)
    assert not alive


def recorded(forward: Callable[[Ops, Any, KVCache, Weights], Any]) -> list[Any]:
    """The ops that this forward pass leaves once the rules have been applied."""

    class Model:
        def forward(self, ops: Ops, batch: Any, kv: KVCache) -> Array:
            return forward(ops, batch, kv, weights)

    backend, weights = open_backend()
    return list(apply_rules(record(Model(), backend.allocate_kv(KV_SHAPE))).ops)


def test_rows_that_nobody_asked_for_are_not_computed():
    def forward(ops, batch, kv, weights):
        x = ops.embed(batch.input_ids, weights.embedding)
        attended = ops.attend(x, kv.layers[0], batch, AttentionParams(0.3))
        x = ops.add(x, ops.linear(attended, weights.square))
        x = ops.add(x, ops.linear(ops.rms_norm(x, weights.norm, 1e-5), weights.square))
        return ops.gather_rows(x, batch.logits_rows)

    ops = recorded(forward)
    assert sum(isinstance(op, GatherRows) for op in ops) == 2  # of what attention returns, and of what it is added to
    assert all(op.out.buffer.is_sampled for op in ops if isinstance(op, Linear))
    assert not any(op.out.buffer.is_sampled for op in ops if isinstance(op, Attend))


REFUSED = {
    "columns of x is 16, expected 32": lambda ops, batch, x, w, kv: ops.linear(ops.silu_mul(x), w.square),
    "columns of y is 16, expected 32": lambda ops, batch, x, w, kv: ops.add(x, ops.silu_mul(x)),
    "whether y has a row": lambda ops, batch, x, w, kv: ops.add(x, ops.gather_rows(x, batch.logits_rows)),
    "columns of x modulo 32 is 16": lambda ops, batch, x, w, kv: ops.rms_norm(ops.silu_mul(x), w.norm, 1e-5),
    "sum of widths is 16, expected 32": lambda ops, batch, x, w, kv: ops.split(x, [8, 8]),
    "positions is BatchArray.SLOT_MAPPING": lambda ops, batch, x, w, kv: ops.rotary(x, batch.slot_mapping, w.rotary),
    "rows is BatchArray.POSITIONS": lambda ops, batch, x, w, kv: ops.gather_rows(x, batch.positions),
    "columns of k is 32, expected 16": lambda ops, batch, x, w, kv: ops.write_kv(x, x, kv, batch.slot_mapping),
    "columns of q modulo 16 is 8": lambda ops, batch, x, w, kv: ops.attend(
        ops.split(x, [8, 24])[0], kv, batch, AttentionParams(1.0)
    ),
    "expected one for each token": lambda ops, batch, x, w, kv: ops.rotary(
        ops.gather_rows(x, batch.logits_rows), batch.positions, w.rotary
    ),
    "the model must return logits": lambda ops, batch, x, w, kv: x,
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_does_not_fit_is_refused_while_it_is_recorded(message):
    def forward(ops, batch, kv, weights):
        x = ops.embed(batch.input_ids, weights.embedding)
        return REFUSED[message](ops, batch, x, weights, kv.layers[0])

    with pytest.raises(ValueError, match=message):
        recorded(forward)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("input_ids", [NUM_IDS], r"input_ids\[0\] is 50, expected 0 to 49"),
        ("positions", [64], r"positions\[0\] is 64, expected 0 to 63"),
        ("slot_mapping", [160], r"slot_mapping\[0\] is 160, expected -1 to 159"),
        ("logits_rows", [1], r"logits_rows\[0\] is 1, expected 0 to 0"),
        ("slot_mapping", [0, 1], "size of slot_mapping is 2, expected 1"),
        ("query_start_loc", [0, 2], "the last query_start_loc is 2, expected 1"),
        ("block_table", [[10]], "request 0: block 0 is 10, the cache has 10"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(name, values, message):
    backend, weights = open_backend()
    model = RandomModel(weights, (("attend", -1, -1),))
    step = backend.prepare(model, backend.allocate_kv(KV_SHAPE))
    fields = {
        "input_ids": [3], "positions": [0], "slot_mapping": [0], "query_start_loc": [0, 1], "seq_lens": [1],
        "block_table": [[0]], "logits_rows": [0],
    }  # fmt: skip
    arrays = {key: np.array(value, np.int32) for key, value in (fields | {name: values}).items()}
    with pytest.raises(ValueError, match=message):
        step.run(StepBatch(**arrays))
    with pytest.raises(TypeError, match=f"{name} must be"):
        step.run(StepBatch(**arrays | {name: arrays[name].astype(np.int64)}))
