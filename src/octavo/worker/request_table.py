"""RequestTable: what the worker remembers of each running request between two steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.backends.ops import Float32Array, Int32Array
from octavo.config import BLOCK_SIZE
from octavo.core.messages import NewRow, SchedulerOutput
from octavo.structured.compiler import GrammarCompiler
from octavo.worker.logit_rules import LogitRules, has_rules

NO_LOGPROBS = -1  # a num_logprobs that asks for none at all; 0 asks for the chosen token's


class RequestTable:
    """One permanent row for each running request, one array for each property.

    A cache of the scheduler's decisions, brought up to date by `apply`, and never a second truth: whatever a row
    held before its request entered is overwritten or never read.
    """

    def __init__(self, grammars: GrammarCompiler, *, max_num_seqs: int, max_model_len: int) -> None:
        """`grammars` has compiled what a row asks for before the row comes."""
        self._grammars = grammars
        max_num_blocks = -(-max_model_len // BLOCK_SIZE)
        self.token_ids: Int32Array = np.zeros((max_num_seqs, max_model_len), np.int32)
        self.block_table: Int32Array = np.zeros((max_num_seqs, max_num_blocks), np.int32)
        self.num_tokens: Int32Array = np.zeros(max_num_seqs, np.int32)  # prompt and output
        self.num_prompt_tokens: Int32Array = np.zeros(max_num_seqs, np.int32)
        self.max_num_tokens: Int32Array = np.zeros(max_num_seqs, np.int32)  # that the request may come to
        self.min_tokens: Int32Array = np.zeros(max_num_seqs, np.int32)
        self.stop_token_ids: list[tuple[int, ...]] = [()] * max_num_seqs
        self.temperature: Float32Array = np.zeros(max_num_seqs, np.float32)
        self.top_k: Int32Array = np.zeros(max_num_seqs, np.int32)
        self.top_p: Float32Array = np.ones(max_num_seqs, np.float32)
        self.min_p: Float32Array = np.zeros(max_num_seqs, np.float32)
        self.repetition_penalty: Float32Array = np.ones(max_num_seqs, np.float32)
        self.frequency_penalty: Float32Array = np.zeros(max_num_seqs, np.float32)
        self.presence_penalty: Float32Array = np.zeros(max_num_seqs, np.float32)
        self.seed: NDArray[np.uint64] = np.zeros(max_num_seqs, np.uint64)
        self.num_logprobs: Int32Array = np.full(max_num_seqs, NO_LOGPROBS, np.int32)
        self.rules_by_row: dict[int, LogitRules] = {}  # of the rows that have any

    def apply(self, scheduled: SchedulerOutput) -> None:
        """Enter the step's new rows, blocks and drafts. A freed row's arrays stay: its next request overwrites them."""
        for row in scheduled.freed_rows:
            self.rules_by_row.pop(row, None)
        for new_row in scheduled.new_rows:
            self._enter(new_row)
        for entry in scheduled.scheduled:
            if entry.block_ids:
                end = entry.block_start + len(entry.block_ids)
                self.block_table[entry.row, entry.block_start : end] = entry.block_ids
            for place, draft_id in enumerate(entry.draft_token_ids):
                self.write_draft(entry.row, place, draft_id)

    def write_draft(self, row: int, place: int, token_id: int) -> None:
        """Let a guess stand behind the row's known tokens and `place` drafts, where it is no token yet."""
        self.token_ids[row, self.num_tokens[row] + place] = token_id

    def draft_ids(self, row: int, num_drafts: int) -> list[int]:
        """The row's first drafts."""
        num_tokens = self.num_tokens[row]
        return self.token_ids[row, num_tokens : num_tokens + num_drafts].tolist()

    def append(self, rows: Int32Array, token_ids: Int32Array, num_before: Int32Array | int = 0) -> None:
        """Add sampled tokens to these rows, in order; `num_before` of each row's new ones stand before it. [S] each."""
        self.token_ids[rows, self.num_tokens[rows] + num_before] = token_ids
        np.add.at(self.num_tokens, rows, 1)
        if self.rules_by_row:
            for row, token_id in zip(rows.tolist(), token_ids.tolist(), strict=True):
                if row in self.rules_by_row:
                    self.rules_by_row[row].append(token_id)

    def _enter(self, new_row: NewRow) -> None:
        row, params, num_tokens = new_row.row, new_row.sampling_params, len(new_row.token_ids)
        self.token_ids[row, :num_tokens] = new_row.token_ids
        self.num_tokens[row] = num_tokens
        self.num_prompt_tokens[row] = new_row.num_prompt_tokens
        max_tokens = self.token_ids.shape[1] if params.max_tokens is None else params.max_tokens
        self.max_num_tokens[row] = min(new_row.num_prompt_tokens + max_tokens, self.token_ids.shape[1])
        self.min_tokens[row] = params.min_tokens
        self.stop_token_ids[row] = new_row.stop_token_ids
        self.temperature[row] = params.temperature
        self.top_k[row] = params.top_k
        self.top_p[row] = params.top_p
        self.min_p[row] = params.min_p
        self.repetition_penalty[row] = params.repetition_penalty
        self.frequency_penalty[row] = params.frequency_penalty
        self.presence_penalty[row] = params.presence_penalty
        self.seed[row] = new_row.seed
        self.num_logprobs[row] = NO_LOGPROBS if params.logprobs is None else params.logprobs
        if has_rules(new_row):
            structure = params.structured_outputs
            matcher = None if structure is None else self._grammars.matcher(structure)
            self.rules_by_row[row] = LogitRules(new_row, matcher, max_model_len=self.token_ids.shape[1])
