"""ModelRunner: one step from the scheduler's decision to the tokens it sampled."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from octavo.backends.ops import NOT_FINITE, NOTHING_LEFT, Array, KVCache, SampledBatch, Step
from octavo.core.messages import CONSTRAINTS_FAILED, ModelRunnerOutput, SampledRow, ScheduledRow, SchedulerOutput
from octavo.worker.drafter import Drafter
from octavo.worker.input_batch import build_sampling_batch, build_step_batch, sampled_places
from octavo.worker.logit_rules import LogitRules
from octavo.worker.prompt_scorer import PromptScorer
from octavo.worker.request_table import NO_LOGPROBS, RequestTable
from octavo.worker.token_logprobs import token_logprobs
from octavo.worker.verification import num_verified

ERROR_BY_TOKEN_ID = {
    NOT_FINITE: "the model's logits are not finite",
    NOTHING_LEFT: f"{CONSTRAINTS_FAILED}: no token may come next, as allowed_token_ids, bad_words, min_tokens and "
    "structured_outputs leave none; relax one of them",
}


class ModelRunner:
    """Runs steps over one KV cache and keeps the rows' tokens between them."""

    def __init__(
        self, step: Step, kv: KVCache, table: RequestTable, *, vocab_size: int, drafter: Drafter | None = None
    ) -> None:
        self._step = step
        self._kv = kv
        self._table = table
        self._vocab_size = vocab_size  # ids the tokenizer knows; logits may be wider by padding
        self._drafter = drafter
        self._scorer = PromptScorer(step, table, vocab_size=vocab_size)

    def run(self, scheduled: SchedulerOutput) -> ModelRunnerOutput:
        """Compute the step's tokens, sample the rows that reach their last known one, verify drafts.

        A row whose logits allow no choice gets an error of its own.
        """
        self._table.apply(scheduled)
        self._kv.copy_blocks(scheduled.block_copies)
        if self._drafter is not None:
            self._drafter.apply(scheduled)
        entries = self._scorer.run(scheduled)
        sampled = self._run(entries) if entries else ()
        reason = self._drafter.reason if self._drafter is not None else ""
        return ModelRunnerOutput(scheduled.step_id, self._scorer.report(sampled), reason)

    def _run(self, entries: Sequence[ScheduledRow]) -> tuple[SampledRow, ...]:
        started_s = time.perf_counter()
        logits = self._step.run(build_step_batch(entries, self._table))
        sampled_entries = [entry for entry in entries if entry.is_sampled]
        if not sampled_entries:
            return ()
        sampled = self._sample(logits, sampled_entries)
        if self._drafter is None:
            return sampled
        self._drafter.observe(entries, sampled, time.perf_counter() - started_s)
        return self._drafter.propose(sampled)

    def _sample(self, logits: Array, entries: Sequence[ScheduledRow]) -> tuple[SampledRow, ...]:
        """Choose the next token of each row, and those after its drafts as far as these are right."""
        rows, num_drafts = sampled_places(entries)  # [S]
        sampled = self._step.sample(logits, build_sampling_batch(rows, num_drafts, self._table, self._vocab_size))
        counts = num_verified(entries, sampled.token_ids.tolist())
        starts = np.flatnonzero(num_drafts == 0)  # [R]
        is_kept = num_drafts < np.repeat(counts, np.diff(starts, append=len(rows)))
        self._table.append(rows[is_kept], sampled.token_ids[is_kept], num_drafts[is_kept])
        return tuple(
            self._sampled_row(entry.row, sampled, range(start, start + count))
            for entry, start, count in zip(entries, starts.tolist(), counts, strict=True)
        )

    def _sampled_row(self, row: int, sampled: SampledBatch, places: range) -> SampledRow:
        if not places:
            return SampledRow(row, (), error=_error(sampled.token_ids[places.start], self._table.rules_by_row.get(row)))
        token_ids = tuple(sampled.token_ids[places.start : places.stop].tolist())
        num_top = self._table.num_logprobs[row]
        if num_top == NO_LOGPROBS:
            return SampledRow(row, token_ids)
        return SampledRow(row, token_ids, tuple(token_logprobs(sampled, place, num_top) for place in places))


def _error(token_id: int, rules: LogitRules | None) -> str:
    """Why there is no token."""
    if rules is not None and rules.error is not None:
        return f"{CONSTRAINTS_FAILED}: structured_outputs: {rules.error}"
    return ERROR_BY_TOKEN_ID[token_id]
