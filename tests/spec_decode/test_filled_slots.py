"""A draft model's KV, held against a ledger: whatever the scheduler does, no slot that counts as filled is wrong."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from octavo.core.executor import FinishedStep
from octavo.core.messages import SchedulerOutput
from octavo.sim.ledger_model import LedgerModel, LedgerRow
from octavo.sim.trial import Trial
from octavo.spec_decode.filled_slots import FilledSlots
from tests.worker.steps import entry, step

JUNK = -2


class DraftLedger:
    """Fills slots of some rows, some way, at each step, and leaves junk where drafts would have been rejected."""

    def __init__(self, ledger: LedgerModel, random: Random) -> None:
        self.slots = [[JUNK] * ledger.block_size for _ in ledger.slots]
        self.filled = FilledSlots(len(ledger.slots), ledger.block_size)
        self.num_found = 0
        self._random = random
        self._size = ledger.block_size

    def apply(self, scheduled: SchedulerOutput) -> None:
        for source, destination in scheduled.block_copies:
            self.slots[destination] = self.slots[source].copy()
        self.filled.apply(scheduled)

    def use(self, row: LedgerRow) -> None:
        blocks, num_tokens = np.array(row.block_ids, np.int32), len(row.token_ids)
        gap = self.filled.first_gap(blocks, num_tokens)
        held = [self.slots[blocks[place // self._size]][place % self._size] for place in range(gap)]
        assert held == row.digests[:gap]
        self.num_found += gap
        if self._random.random() < 0.3:
            end = self._random.randint(gap, num_tokens)
            for place in range(gap, min(num_tokens + 3, len(blocks) * self._size)):
                self.slots[blocks[place // self._size]][place % self._size] = (
                    row.digests[place] if place < end else JUNK
                )
            self.filled.fill(blocks, gap, end)


def test_what_counts_as_filled_holds_what_the_sequence_needs(monkeypatch):
    drafts: list[DraftLedger] = []
    execute = LedgerModel.execute

    def execute_both(ledger: LedgerModel, scheduled: SchedulerOutput) -> FinishedStep:
        if scheduled.step_id == 1:
            drafts.append(DraftLedger(ledger, Random(len(drafts))))
        drafts[-1].apply(scheduled)
        handle = execute(ledger, scheduled)
        for row in ledger.rows.values():
            drafts[-1].use(row)
        return handle

    monkeypatch.setattr(LedgerModel, "execute", execute_both)
    for seed in range(25):
        Trial(seed, 80).run()
    assert sum(draft.num_found > 0 for draft in drafts) == 25


def test_the_first_gap():
    filled = FilledSlots(num_blocks=8, block_size=4)
    blocks = np.array([3, 5, 2], np.int32)
    filled.apply(step(entry(0, 0, 9, blocks=(3, 5, 2))))
    assert filled.first_gap(blocks, 9) == 0
    filled.fill(blocks, 0, 6)
    assert filled.first_gap(blocks, 9) == 6
    assert filled.first_gap(blocks, 5) == 5
    filled.fill(blocks, 6, 20)  # as far as there are blocks
    assert filled.first_gap(blocks, 12) == filled.first_gap(blocks, 20) == 12
    assert filled.first_gap(np.array([], np.int32), 1) == 0


@pytest.mark.parametrize("num_shared", [3, 4, 6, 8])
def test_shared_blocks_keep_what_they_have_and_a_copy_as_much_as_is_the_same(num_shared):
    filled = FilledSlots(num_blocks=8, block_size=4)
    blocks = np.array([0, 1], np.int32)
    filled.apply(step(entry(0, 0, 8, blocks=(0, 1))))
    filled.fill(blocks, 0, 7)
    shared = [0, 1][: num_shared // 4]
    copied = ((len(shared), 5),) if num_shared % 4 else ()
    table = (*shared, *(5 for _ in copied), 6)
    filled.apply(step(entry(1, num_shared, 1, blocks=table), block_copies=copied))
    assert filled.first_gap(np.array(table, np.int32), 12) == min(num_shared, 7)
