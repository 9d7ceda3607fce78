"""ModelRunner: one step from the scheduler's decision to the tokens it sampled."""

from __future__ import annotations

import numpy as np

from octavo.backends.ops import NOT_FINITE, NOTHING_LEFT, Int32Array, KVCache, SampledBatch, Step
from octavo.core.messages import CONSTRAINTS_FAILED, ModelRunnerOutput, SampledRow, SchedulerOutput
from octavo.worker.input_batch import build_sampling_batch, build_step_batch
from octavo.worker.logit_rules import LogitRules
from octavo.worker.prompt_scorer import PromptScorer
from octavo.worker.request_table import NO_LOGPROBS, RequestTable
from octavo.worker.token_logprobs import token_logprobs

ERROR_BY_TOKEN_ID = {
    NOT_FINITE: "the model's logits are not finite",
    NOTHING_LEFT: f"{CONSTRAINTS_FAILED}: no token may come next, as allowed_token_ids, bad_words, min_tokens and "
    "structured_outputs leave none; relax one of them",
}


class ModelRunner:
    """Runs steps over one KV cache and keeps the rows' tokens between them."""

    def __init__(self, step: Step, kv: KVCache, table: RequestTable, *, vocab_size: int) -> None:
        self._step = step
        self._kv = kv
        self._table = table
        self._vocab_size = vocab_size  # ids the tokenizer knows; logits may be wider by padding
        self._scorer = PromptScorer(step, table, vocab_size=vocab_size)

    def run(self, scheduled: SchedulerOutput) -> ModelRunnerOutput:
        """Compute the step's tokens, and sample the rows that reach their last known one.

        A row whose logits allow no choice gets an error of its own. Raises NotImplementedError for drafts.
        """
        if any(entry.draft_token_ids for entry in scheduled.scheduled):
            raise NotImplementedError("the step holds draft tokens, which this worker cannot verify")
        self._table.apply(scheduled)
        self._kv.copy_blocks(scheduled.block_copies)
        entries = self._scorer.run(scheduled)
        if not entries:
            return ModelRunnerOutput(scheduled.step_id, ())
        logits = self._step.run(build_step_batch(entries, self._table))
        rows = np.array([entry.row for entry in entries if entry.is_sampled], np.int32)  # [S]
        if len(rows) == 0:
            return ModelRunnerOutput(scheduled.step_id, ())
        sampled = self._step.sample(logits, build_sampling_batch(rows, self._table, self._vocab_size))
        is_chosen = sampled.token_ids >= 0
        self._table.append(rows[is_chosen], sampled.token_ids[is_chosen])
        sampled_rows = _sampled_rows(rows, sampled, self._table)
        return ModelRunnerOutput(scheduled.step_id, self._scorer.report(sampled_rows))


def _sampled_rows(rows: Int32Array, sampled: SampledBatch, table: RequestTable) -> tuple[SampledRow, ...]:
    num_logprobs = table.num_logprobs[rows]
    return tuple(
        SampledRow(row, (), error=_error(token_id, table.rules_by_row.get(row)))
        if token_id < 0
        else SampledRow(row, (token_id,), () if num_top == NO_LOGPROBS else (token_logprobs(sampled, index, num_top),))
        for index, (row, token_id, num_top) in enumerate(
            zip(rows.tolist(), sampled.token_ids.tolist(), num_logprobs.tolist(), strict=True)
        )
    )


def _error(token_id: int, rules: LogitRules | None) -> str:
    """Why there is no token."""
    if rules is not None and rules.error is not None:
        return f"{CONSTRAINTS_FAILED}: structured_outputs: {rules.error}"
    return ERROR_BY_TOKEN_ID[token_id]
