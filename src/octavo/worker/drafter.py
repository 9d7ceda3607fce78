"""Drafter: gives rows that were sampled guesses at what follows, for the next step to verify."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.core.equal_prefix import equal_prefix_length
from octavo.core.messages import SampledRow, ScheduledRow, SchedulerOutput
from octavo.spec_decode.draft_budget import DraftBudget, Outlook
from octavo.spec_decode.proposer import Proposer
from octavo.worker.request_table import RequestTable

FIRST_OUTPUT_LEN = 64.0  # of outputs, before any has ended
OUTPUT_FORGETTING = 0.9  # at each that ends


class Drafter:
    """Lets a proposer guess where a budget finds it worth its time, and tells the budget what came of it."""

    def __init__(self, proposer: Proposer, budget: DraftBudget, table: RequestTable, *, max_drafts: int) -> None:
        self._proposer = proposer
        self._budget = budget
        self._table = table
        self._max_drafts = max_drafts
        self._guess_by_row: dict[int, list[int]] = {}
        self._output_len_by_row: dict[int, int] = {}
        self._mean_output_len = FIRST_OUTPUT_LEN

    @property
    def reason(self) -> str:
        """Why there are no drafts, when there are none."""
        return self._budget.reason

    def apply(self, scheduled: SchedulerOutput) -> None:
        """Learn of a step, after the table has and before the step runs."""
        for row in scheduled.freed_rows:
            self._budget.forget(row)
            self._guess_by_row.pop(row, None)
            output_len = self._output_len_by_row.pop(row, self._mean_output_len)
            self._mean_output_len += (1 - OUTPUT_FORGETTING) * (output_len - self._mean_output_len)
        self._proposer.apply(scheduled)

    def observe(self, scheduled: Sequence[ScheduledRow], sampled: Sequence[SampledRow], step_s: float) -> None:
        """Learn what a step took, and which guesses were right: also those that it was spared."""
        if not any(entry.is_chunk for entry in scheduled):
            self._budget.observe_step(sum(entry.num_scheduled_tokens for entry in scheduled), step_s)
        for row in sampled:
            guess = self._guess_by_row.pop(row.row, [])[: len(row.token_ids)]
            num_right = equal_prefix_length(guess, row.token_ids)
            if guess:
                self._budget.observe_guess(row.row, num_right, is_wrong=num_right < len(guess))

    def propose(self, sampled: Sequence[SampledRow]) -> tuple[SampledRow, ...]:
        """The same rows with drafts, where there are any."""
        outlooks = [self._outlook(row.row) for row in sampled if self._may_guess(row)]
        num_drafts_by_row = self._budget.allot(outlooks)
        wanted = num_drafts_by_row
        if self._proposer.is_free:  # so is seeing whether it is right
            wanted = {outlook.row: outlook.max_drafts for outlook in outlooks}
        guesses = self._proposer.propose(wanted)
        self._guess_by_row |= {row: self._allowed(row, guess) for row, guess in guesses.items()}
        return tuple(self._with_drafts(row, num_drafts_by_row.get(row.row, 0)) for row in sampled)

    def _may_guess(self, sampled: SampledRow) -> bool:
        """Whether the row goes on; a first token is not kept waiting for guesses that take time."""
        if sampled.error is not None or sampled.token_ids[-1] in self._table.stop_token_ids[sampled.row]:
            return False
        is_first = self._table.num_tokens[sampled.row] == self._table.num_prompt_tokens[sampled.row] + 1
        return self._proposer.is_free or not is_first

    def _outlook(self, row: int) -> Outlook:
        table = self._table
        num_left = int(table.max_num_tokens[row] - table.num_tokens[row]) - 1  # the last one is never a draft
        output_len = int(table.num_tokens[row] - table.num_prompt_tokens[row])
        self._output_len_by_row[row] = output_len
        # Who has outlived the mean is expected to live on for as long again.
        num_to_come = max(int(self._mean_output_len) - output_len, output_len)
        return Outlook(
            row,
            max_drafts=max(0, min(self._max_drafts, num_left)),
            num_missing=self._proposer.num_missing(row),
            num_to_come=min(num_left, num_to_come),
        )

    def _allowed(self, row: int, guess: list[int]) -> list[int]:
        """The guess, up to what the row's grammar forbids."""
        rules = self._table.rules_by_row.get(row)
        return guess if rules is None or rules.matcher is None else guess[: rules.matcher.num_allowed(guess)]

    def _with_drafts(self, sampled: SampledRow, num_drafts: int) -> SampledRow:
        guess = self._guess_by_row.get(sampled.row)
        return sampled._replace(draft_token_ids=tuple(guess[:num_drafts])) if guess and num_drafts else sampled
