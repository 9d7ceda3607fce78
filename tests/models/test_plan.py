"""A plan computes, to the bit, what its ops compute one by one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from octavo.backends.native import fusions, plan
from octavo.backends.native.backend import NativeBackend
from octavo.backends.ops import StepBatch, StoredTensor
from octavo.config import BLOCK_SIZE
from octavo.weights.checkpoint import Checkpoint, open_checkpoint
from tests.backends.test_stored_codes import coded
from tests.models.conftest import GOLDEN
from tests.models.sequence_runner import MAX_POSITIONS, Chunk, SequenceRunner, step_batch

pytestmark = pytest.mark.equality

MODELS = ["llama", "llama3", "qwen2", "qwen3"]
KINDS = ["float32", "bfloat16", "int8", "int4"]
NUM_SEQUENCES = 5
BLOCKS_PER_SEQUENCE = MAX_POSITIONS // BLOCK_SIZE
NUM_BLOCKS = NUM_SEQUENCES * BLOCKS_PER_SEQUENCE
VOCAB_SIZE = 320


class Traffic:
    """Sequences that grow from step to step, by chunks of a prompt or by a token at a time."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._token_ids = self._rng.integers(VOCAB_SIZE, size=(NUM_SEQUENCES, MAX_POSITIONS))
        self._block_ids = self._rng.permutation(NUM_BLOCKS).reshape(NUM_SEQUENCES, -1)
        self._lengths = [0] * NUM_SEQUENCES

    def step(self, counts: Sequence[int], rows: str) -> StepBatch:
        """A step that gives each sequence so many tokens; the logits of which rows, "all", "last" or "none"."""
        chunks = []
        for i, count in enumerate(counts):
            start, self._lengths[i] = self._lengths[i], self._lengths[i] + count
            if count > 0:
                token_ids = self._token_ids[i, start : start + count]
                chunks.append(Chunk(token_ids.tolist(), start, self._block_ids[i].tolist()))
        batch = step_batch(tuple(chunks))
        if rows == "all":
            return batch
        last = batch.query_start_loc[1:] - np.int32(1)
        return dataclasses.replace(batch, logits_rows=last if rows == "last" else last[:0])

    def random_steps(self) -> list[StepBatch]:
        """Steps until all sequences are full."""
        steps = []
        while min(self._lengths) < MAX_POSITIONS:
            sizes = self._rng.choice([0, 1, 1, 5, 16, 40, MAX_POSITIONS], NUM_SEQUENCES)
            counts = [min(int(size), MAX_POSITIONS - length) for size, length in zip(sizes, self._lengths, strict=True)]
            if any(counts):
                steps.append(self.step(counts, self._rng.choice(["all", "last", "none"])))
        return steps


def open_model(name: str, kind: str, num_threads: int, *, is_recorded: bool) -> SequenceRunner:
    how: dict[str, Any] = {"quantization": kind} if kind in ("int8", "int4") else {"dtype": kind}
    backend = NativeBackend(num_threads, **how, is_recorded=is_recorded)
    checkpoint = open_checkpoint(GOLDEN / name)
    return SequenceRunner(checkpoint.config, checkpoint.tensors, backend, NUM_BLOCKS)


class OrderedLayers:
    """The layers of a checkpoint in codes of four bits whose columns are in an order of their own."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._tensors = checkpoint.tensors

    def names(self) -> list[str]:
        return self._tensors.names()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors.shape(name)

    def stored(self, name: str) -> StoredTensor:
        tensor = self._tensors.stored(name)
        if not name.endswith("_proj.weight"):
            return tensor
        rng = np.random.default_rng(tensor.shape[1])
        order = rng.permutation(tensor.shape[1]).astype(np.int32)  # first: layers of one input have one order
        codes = coded(rng, tensor.shape, bits=4, group_size=32, has_zeros=True)
        assert codes.scales is not None
        return dataclasses.replace(codes, scales=dataclasses.replace(codes.scales, order=order))

    def __contains__(self, name: str) -> bool:
        return name in self._tensors


@pytest.mark.parametrize("num_threads", [1, 2])
def test_inputs_are_gathered_as_they_are_made(num_threads):
    checkpoint = open_checkpoint(GOLDEN / "qwen2")
    runners = [
        SequenceRunner(
            checkpoint.config,
            OrderedLayers(checkpoint),
            NativeBackend(num_threads, is_recorded=is_recorded),
            NUM_BLOCKS,
        )
        for is_recorded in (False, True)
    ]
    for batch in Traffic(5).random_steps()[:6]:
        eager, recorded = (runner.step.run(batch) for runner in runners)
        assert recorded.tobytes() == eager.tobytes()
        assert np.isfinite(eager).all()


def assert_equal_steps(name: str, kind: str, steps: Sequence[StepBatch], num_threads: int = 2) -> None:
    eager = open_model(name, kind, num_threads, is_recorded=False)
    recorded = open_model(name, kind, num_threads, is_recorded=True)
    for index, batch in enumerate(steps):
        expected = eager.step.run(batch)
        assert recorded.step.run(batch).tobytes() == expected.tobytes(), f"step {index}"


@pytest.mark.parametrize("num_threads", [1, 2, 5])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_prompts_and_decodes_together(name, kind, num_threads):
    assert_equal_steps(name, kind, Traffic(0).random_steps(), num_threads)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_may_have_one_token_or_hundreds(kind):
    traffic = Traffic(1)
    counts = [[1, 0, 0, 0, 0], [120] * NUM_SEQUENCES, [1] * NUM_SEQUENCES, [0, 0, 1, 0, 0]]
    assert_equal_steps("llama3", kind, [traffic.step(count, "last") for count in counts])


@pytest.mark.parametrize("num_rules", range(len(fusions.RULES) + 1))
@pytest.mark.parametrize("kind", KINDS)
def test_no_rule_changes_a_bit(kind, num_rules, monkeypatch):
    monkeypatch.setattr(plan, "apply_rules", partial(fusions.apply_rules, rules=fusions.RULES[:num_rules]))
    assert_equal_steps("qwen2", kind, Traffic(2).random_steps())


@pytest.mark.parametrize("name", MODELS)
def test_no_op_reads_what_none_has_written(name, monkeypatch):
    monkeypatch.setattr(plan, "build_plan", partial(plan.build_plan, is_poisoned=True))
    assert_equal_steps(name, "float32", Traffic(3).random_steps())
