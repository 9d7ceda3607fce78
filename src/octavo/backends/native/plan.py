"""A model as a plan: its forward pass recorded once, and replayed in one call a step (csrc/plan.h)."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

from octavo.backends.native.arena import last_uses, place
from octavo.backends.native.arrays import empty
from octavo.backends.native.fusions import apply_rules
from octavo.backends.native.recorder import record
from octavo.backends.native.recording import Buffer, Recording, SymbolicArray
from octavo.backends.ops import Float32Array, KVCache, Model, StepBatch


class RecordedModel:
    """Calling it runs one step."""

    def __init__(self, extension: ModuleType, pool: Any, model: Model, kv: KVCache) -> None:
        recording = apply_rules(record(model, kv))
        self._plan = build_plan(extension, recording)
        self._pool = pool
        self._vocab_size = recording.result.num_columns

    def __call__(self, batch: StepBatch) -> Float32Array:
        """Write the step's KV and return the logits of `batch.logits_rows`, [S, V]."""
        logits = empty(len(batch.logits_rows), self._vocab_size)
        self._plan.run(self._pool, batch, logits)
        return logits


def build_plan(extension: ModuleType, recording: Recording, *, is_poisoned: bool = False) -> Any:
    """An extension.Plan that computes what was recorded. It keeps weights and cache alive.

    `is_poisoned`, for tests: whatever an op has not written, or no later op may read, is NaN.
    """
    plan = extension.Plan()
    slot_by_buffer = place(recording)

    def locate(argument: Any) -> Any:
        if not isinstance(argument, SymbolicArray):
            return argument
        slot = slot_by_buffer[argument.buffer]
        return extension.PlanArray(
            is_sampled=argument.buffer.is_sampled,
            slot=slot.start,
            slot_width=slot.width,
            first_column=argument.first_column,
            num_columns=argument.num_columns,
        )

    def poison(buffers: Iterable[Buffer]) -> None:
        for buffer in buffers:
            plan.poison(locate(buffer.whole))

    for op, dying in zip(recording.ops, last_uses(recording.ops), strict=True):
        if is_poisoned:
            poison(out.buffer for out in op.outputs)
        append = getattr(plan, op.method)
        append(**{name: locate(argument) for name, argument in op.arguments.items()})
        if is_poisoned:
            poison(buffer for buffer in dying if buffer is not recording.result.buffer)
    return plan
