"""PromptScorer: how likely the model finds each token of a prompt, given those before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from octavo.backends.ops import Int32Array, Step
from octavo.config import SCORED_PIECE_TOKENS
from octavo.core.messages import SampledRow, ScheduledRow, SchedulerOutput, TokenLogprobs
from octavo.worker.input_batch import build_scoring_batch, build_step_batch
from octavo.worker.request_table import RequestTable
from octavo.worker.token_logprobs import token_logprobs


class PromptScorer:
    """Runs the prompts whose log-probabilities are wanted, piece by piece, and keeps these until the prompt is through.

    A token's log-probability is read off the position before it. Like a chunk, a piece makes no difference to a bit.
    """

    def __init__(self, step: Step, table: RequestTable, *, vocab_size: int) -> None:
        self._step = step
        self._table = table
        self._vocab_size = vocab_size
        self._num_top_by_row: dict[int, int] = {}
        self._scores_by_row: dict[int, list[TokenLogprobs | None]] = {}  # None: not finite

    def run(self, scheduled: SchedulerOutput) -> Sequence[ScheduledRow]:
        """Run every token of the step that needs logits for its successor's sake; return what is left to run."""
        for row in scheduled.freed_rows:
            self._scores_by_row.pop(row, None)
        for new_row in scheduled.new_rows:
            if new_row.has_prompt_logprobs:
                self._num_top_by_row[new_row.row] = new_row.sampling_params.prompt_logprobs or 0
                self._scores_by_row[new_row.row] = []
        if not self._scores_by_row:
            return scheduled.scheduled
        rest, scored = [], []
        for entry in scheduled.scheduled:
            if entry.row in self._scores_by_row:
                scored.append(entry._replace(num_scheduled_tokens=entry.num_scheduled_tokens - entry.is_sampled))
                if not entry.is_sampled:
                    continue
                last = entry.num_computed_tokens + entry.num_scheduled_tokens - 1
                entry = entry._replace(num_computed_tokens=last, num_scheduled_tokens=1)
            rest.append(entry)
        for piece in _pieces(scored):
            self._score(piece)
        return rest

    def report(self, sampled: tuple[SampledRow, ...]) -> tuple[SampledRow, ...]:
        """Give the rows that have got their first token what was kept for them."""
        if not self._scores_by_row:
            return sampled
        return tuple(self._report_row(row) for row in sampled)

    def _score(self, piece: Sequence[ScheduledRow]) -> None:
        batch = build_step_batch(piece, self._table)
        logits = self._step.run(replace(batch, logits_rows=np.arange(batch.num_tokens, dtype=np.int32)))
        rows = np.repeat([entry.row for entry in piece], np.diff(batch.query_start_loc))  # [T]
        next_ids: Int32Array = self._table.token_ids[rows, batch.positions + 1]
        num_top = np.array([self._num_top_by_row[row] for row in rows.tolist()], np.int32)
        scores = self._step.sample(logits, build_scoring_batch(next_ids, num_top, self._vocab_size))
        for index, row in enumerate(rows.tolist()):
            is_finite = scores.token_ids[index] >= 0
            score = token_logprobs(scores, index, self._num_top_by_row[row]) if is_finite else None
            self._scores_by_row[row].append(score)

    def _report_row(self, sampled: SampledRow) -> SampledRow:
        scores = self._scores_by_row.pop(sampled.row, None)
        if scores is None or sampled.error is not None:
            return sampled
        finite = tuple(score for score in scores if score is not None)
        if len(finite) < len(scores):
            return SampledRow(sampled.row, (), error="the model's logits are not finite within the prompt")
        return sampled._replace(prompt_logprobs=finite)


def _pieces(entries: Iterable[ScheduledRow]) -> Iterator[Sequence[ScheduledRow]]:
    """The same tokens in the same order, at most SCORED_PIECE_TOKENS at a time."""
    piece: list[ScheduledRow] = []
    num_free = SCORED_PIECE_TOKENS
    for entry in entries:
        start, end = entry.num_computed_tokens, entry.num_computed_tokens + entry.num_scheduled_tokens
        while start < end:
            num_tokens = min(num_free, end - start)
            piece.append(entry._replace(num_computed_tokens=start, num_scheduled_tokens=num_tokens, is_sampled=False))
            start += num_tokens
            num_free -= num_tokens
            if num_free == 0:
                yield piece
                piece, num_free = [], SCORED_PIECE_TOKENS
    if piece:
        yield piece
