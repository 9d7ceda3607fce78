"""Where the arrays of a plan lie: arrays that are never alive at the same time share memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.backends.native.recording import Buffer, PlanOp, Recording

_ALIGNMENT = 16  # floats: each row begins at a cache line
RESULT = -1  # the slot that is not in the arena (csrc/plan.h)


@dataclass(frozen=True, slots=True)
class Slot:
    """`width` floats a row, beginning at the float `start` of a step of one row."""

    start: int
    width: int


def place(recording: Recording) -> dict[Buffer, Slot]:
    """A slot for each buffer: the first that is free from the op that writes it to the last one that reads it."""
    last_use = last_uses(recording.ops)
    slot_by_buffer: dict[Buffer, Slot] = {}
    alive: list[Slot] = []
    for index, op in enumerate(recording.ops):
        for out in op.outputs:
            if out.buffer is recording.result.buffer:
                slot_by_buffer[out.buffer] = Slot(RESULT, out.buffer.num_columns)
                continue
            width = -(-out.buffer.num_columns // _ALIGNMENT) * _ALIGNMENT
            slot = _first_fit(alive, width)
            slot_by_buffer[out.buffer] = slot
            alive.append(slot)
        for buffer in last_use[index]:
            if slot_by_buffer[buffer] in alive:
                alive.remove(slot_by_buffer[buffer])
    return slot_by_buffer


def last_uses(ops: Sequence[PlanOp]) -> list[list[Buffer]]:
    """For each op the buffers that no later op uses."""
    index_by_buffer = {
        array.buffer: index for index, op in enumerate(ops) for array in (*op.inputs.values(), *op.outputs)
    }
    dying: list[list[Buffer]] = [[] for _ in ops]
    for buffer, index in index_by_buffer.items():
        dying[index].append(buffer)
    return dying


def _first_fit(alive: Sequence[Slot], width: int) -> Slot:
    start = 0
    for slot in sorted(alive, key=lambda slot: slot.start):
        if slot.start - start >= width:
            break
        start = max(start, slot.start + slot.width)
    return Slot(start, width)
