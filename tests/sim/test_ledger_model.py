"""The ledger model refuses, one by one, the steps that no correct scheduler asks for."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from octavo.core.messages import NewRow, SampledRow, ScheduledRow, SchedulerOutput
from octavo.core.sampling_params import SamplingParams
from octavo.sim.ledger_model import LedgerError, LedgerModel, Noise
from octavo.sim.solo import continue_solo
from tests.core.engine_requests import make_request

PROMPT = (5, 6, 7, 8, 9, 10)


def make_ledger(noise: Noise | None = None) -> LedgerModel:
    return LedgerModel(
        num_blocks=8, block_size=4, max_num_seqs=2, max_num_batched_tokens=12, vocab_size=50, noise=noise
    )


def new_row(row: int = 0, token_ids: tuple[int, ...] = PROMPT) -> NewRow:
    return NewRow(row, token_ids, len(PROMPT), SamplingParams(), 0, ())


def run_of(row: int, first: int, num_tokens: int, blocks: tuple[int, ...] = (), **fields: Any) -> ScheduledRow:
    settings: dict[str, Any] = {"is_sampled": True, "block_start": 0, "draft_token_ids": ()} | fields
    return ScheduledRow(row, first, num_tokens, block_ids=blocks, **settings)


def step(step_id: int, *scheduled: ScheduledRow, **fields: Any) -> SchedulerOutput:
    num_tokens = sum(row.num_scheduled_tokens for row in scheduled)
    return SchedulerOutput(step_id, num_tokens, scheduled, **fields)


def execute(ledger: LedgerModel, *steps: SchedulerOutput) -> tuple[SampledRow, ...]:
    for scheduled in steps:
        output = ledger.execute(scheduled).result()
    return output.sampled


ENTERED = step(1, run_of(0, 0, 6, (3, 1)), new_rows=(new_row(),))
DECODED = step(2, run_of(0, 6, 1, block_start=2))


def test_it_answers_what_the_request_would_be_answered_alone():
    expected = continue_solo(make_request("r", PROMPT, max_tokens=2), 0, max_model_len=100, vocab_size=50)
    ledger = make_ledger()
    answered = [execute(ledger, scheduled)[0].token_ids[0] for scheduled in (ENTERED, DECODED)]
    assert tuple(answered) == expected.token_ids


WRONG_SECOND_STEPS = {
    "comes where step 2 was due": step(3, run_of(0, 6, 1, block_start=2)),
    "holds 13, limit 12": step(2, run_of(0, 6, 13, block_start=2)),
    "says 2 tokens, holds 1": SchedulerOutput(2, 2, (run_of(0, 6, 1, block_start=2),)),
    "a row runs twice": step(2, run_of(0, 6, 1, block_start=2), run_of(0, 6, 1, block_start=2)),
    "row 1 runs and nobody is in it": step(2, run_of(1, 6, 1)),
    "row 0 is given away": step(2, run_of(0, 0, 6, (3, 1)), new_rows=(new_row(),)),
    "row 2 is given away": step(2, run_of(2, 0, 6, (3, 1)), new_rows=(new_row(2),)),
    "row 1 is freed and nobody": step(2, run_of(0, 6, 1, block_start=2), freed_rows=(1,)),
    "enter and run nothing": step(2, run_of(0, 6, 1, block_start=2), new_rows=(new_row(1),)),
    r"runs tokens \[5, 6\)": step(2, run_of(0, 5, 1, block_start=2)),
    r"runs tokens \[6, 8\)": step(2, run_of(0, 6, 2, block_start=2)),
    "is_sampled=False": step(2, run_of(0, 6, 1, block_start=2, is_sampled=False)),
    "verifies drafts": step(2, run_of(0, 6, 1, block_start=2, draft_token_ids=(4,))),
    "changes from 3": step(2, run_of(0, 6, 1, block_start=3)),
    "has 4 slots, too few": step(2, run_of(0, 6, 1, block_start=1)),
    "names a block twice": step(2, run_of(0, 6, 1, (3, 3))),
    "block 2 is copied to 2": step(2, run_of(0, 6, 1, block_start=2), block_copies=((2, 2),)),
    "slot 0 of block 2, which is to hold position 0 of 7": step(2, run_of(0, 6, 1, (2, 1))),
    "slot 0 of block 1, which is to hold position 4 of 7": step(
        2, run_of(0, 6, 1, block_start=2), block_copies=((3, 1),)
    ),
}


@pytest.mark.parametrize("complaint", WRONG_SECOND_STEPS)
def test_a_wrong_step_is_refused_on_the_spot(complaint):
    ledger = make_ledger()
    execute(ledger, ENTERED)
    with pytest.raises(LedgerError, match=complaint):
        execute(ledger, WRONG_SECOND_STEPS[complaint])


def test_a_prefix_hit_on_the_wrong_block_is_seen():
    ledger = make_ledger()
    other = step(2, run_of(1, 4, 2, (1, 5)), new_rows=(new_row(1),))  # block 3 holds the first four tokens
    with pytest.raises(LedgerError, match="slot 0 of block 1"):
        execute(ledger, ENTERED, other)


def test_two_rows_that_write_one_block_are_seen():
    ledger = make_ledger()
    rows = run_of(0, 0, 6, (3, 1)), run_of(1, 0, 6, (1, 2))
    with pytest.raises(LedgerError, match="slot 0 of block 1"):
        execute(ledger, step(1, *rows, new_rows=(new_row(0), new_row(1, PROMPT[::-1]))))


def test_copies_are_made_in_the_order_given():
    first_half = run_of(1, 4, 2, (2, 6))
    right_order = step(2, first_half, new_rows=(new_row(1),), block_copies=((3, 4), (4, 2)))
    execute(make_ledger(), ENTERED, right_order)
    wrong_order = step(2, first_half, new_rows=(new_row(1),), block_copies=((4, 2), (3, 4)))
    with pytest.raises(LedgerError, match="slot 0 of block 2"):
        execute(make_ledger(), ENTERED, wrong_order)


def test_right_drafts_are_accepted_and_wrong_ones_end_the_run():
    solo = continue_solo(make_request("r", PROMPT, max_tokens=8), 0, max_model_len=100, vocab_size=50).token_ids
    for num_right in range(4):
        ledger = make_ledger(Noise(Random(0), max_drafts=3, draft_accuracy=1.0))
        execute(ledger, ENTERED)
        drafts = solo[1 : 1 + num_right] + (99,) * (3 - num_right)
        ledger.rows[0].draft_token_ids = drafts
        (sampled,) = execute(ledger, step(2, run_of(0, 6, 4, (0,), block_start=2, draft_token_ids=drafts)))
        assert sampled.token_ids == solo[1 : 2 + num_right]
        assert ledger.coverage[f"draft rejected at position {num_right}"] == (num_right < 3)
        # Positions 6 and 7 fill a block; rejected drafts beyond 8 were rolled back over its border.
        assert ledger.coverage["drafts rolled back over a block border"] == (num_right < 2)


def test_a_row_may_be_told_to_fail():
    (sampled,) = execute(make_ledger(Noise(Random(0), error_rate=1.0)), ENTERED)
    assert sampled.error and sampled.token_ids == ()
