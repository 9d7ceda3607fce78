"""DraftModel: a small model that guesses what a large one will say (Leviathan et al. 2023; Chen et al. 2023)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from octavo.backends.ops import Int32Array, KVCache, Step
from octavo.config import BLOCK_SIZE
from octavo.core.equal_prefix import equal_prefix_length
from octavo.core.line_fit import LineFit
from octavo.core.messages import ScheduledRow, SchedulerOutput
from octavo.spec_decode.filled_slots import FilledSlots
from octavo.worker.input_batch import build_sampling_batch, build_step_batch
from octavo.worker.request_table import NO_LOGPROBS, RequestTable

CATCH_UP_TOKENS = 64  # of texts that it has not read, at a step: those who wait for a token shall not wait for it
FORGETTING = 0.98  # weight of the past at each pass


class DraftModel:
    """Guesses with the request's own parameters and the very draws that will choose the tokens.

    So a guess is right whenever both models, given the same random number, say the same; a model guesses itself without
    a mistake. It reads a text when it first guesses, and afterwards what was added since.
    """

    is_free = False

    def __init__(
        self, step: Step, kv: KVCache, table: RequestTable, *, num_blocks: int, vocab_size: int, max_drafts: int
    ) -> None:
        """`kv` has `num_scratch_blocks` for each row behind the target's `num_blocks`."""
        max_num_seqs = len(table.num_tokens)
        self._step = step
        self._kv = kv
        self._table = table
        self._vocab_size = vocab_size
        self._max_drafts = max_drafts
        self._num_scratch = num_scratch_blocks(max_drafts)
        self._first_scratch_id = num_blocks
        self._slots = FilledSlots(num_blocks, BLOCK_SIZE)
        self._num_blocks: Int32Array = np.zeros(max_num_seqs, np.int32)  # of each row
        # How many tokens a row had when it was guessed for, and the drafts whose KV lies in its blocks:
        self._written_by_row: dict[int, tuple[int, list[int]]] = {}
        self._pass = LineFit(FORGETTING)

    def apply(self, scheduled: SchedulerOutput) -> None:
        """Follow the target's blocks."""
        self._kv.copy_blocks(scheduled.block_copies)
        self._slots.apply(scheduled)
        for row in scheduled.freed_rows:
            self._written_by_row.pop(row, None)
        for entry in scheduled.scheduled:
            self._num_blocks[entry.row] = entry.block_start + len(entry.block_ids)

    def propose(self, num_drafts_by_row: Mapping[int, int]) -> dict[int, list[int]]:
        """Guess for these rows, one token of each in a pass. A row whose text it is still reading gets no guess."""
        self._keep_right_drafts()
        guess_by_row: dict[int, list[int]] = {}
        reads = self._reads(num_drafts_by_row)
        if reads:
            self._run(reads, guess_by_row)
        for place in range(1, self._max_drafts):
            rows = [row for row, guess in guess_by_row.items() if len(guess) == place < num_drafts_by_row[row]]
            if not rows:
                break
            self._run([self._run_of_draft(row, place - 1) for row in rows], guess_by_row)
        for row, guess in guess_by_row.items():
            num_tokens = int(self._table.num_tokens[row])
            num_slots = max(0, int(self._num_blocks[row]) * BLOCK_SIZE - num_tokens)
            self._written_by_row[row] = num_tokens, guess[:-1][:num_slots]  # the last was never run
        return guess_by_row

    def pass_s(self, num_tokens: int) -> float:
        """As measured; while all passes were alike, as if one without tokens took no time."""
        line = self._pass
        return line.at(num_tokens) if line.slope > 0 else line.mean_y * num_tokens / max(1.0, line.mean_x)

    def num_missing(self, row: int) -> int:
        """What it has not read."""
        num_tokens = int(self._table.num_tokens[row])
        return max(0, num_tokens - 1 - self._slots.first_gap(self._blocks(row), num_tokens))

    def _blocks(self, row: int) -> Int32Array:
        """The row's blocks, [B]."""
        return self._table.block_table[row, : self._num_blocks[row]]

    def _keep_right_drafts(self) -> None:
        """Drafts that have become tokens have their KV already."""
        for row, (num_before, drafts) in list(self._written_by_row.items()):
            num_tokens = int(self._table.num_tokens[row])
            if num_tokens == num_before:
                continue  # not verified yet
            del self._written_by_row[row]
            new_ids = self._table.token_ids[row, num_before:num_tokens].tolist()
            end = num_before + equal_prefix_length(drafts, new_ids)
            if self._slots.first_gap(self._blocks(row), num_before) == num_before:
                self._slots.fill(self._blocks(row), num_before, end)

    def _reads(self, rows: Iterable[int]) -> list[ScheduledRow]:
        """What each row runs of its tokens without KV: all, if they are few, or a share of what a step may read."""
        reads, num_left = [], CATCH_UP_TOKENS
        for row in rows:
            num_tokens, blocks = int(self._table.num_tokens[row]), self._blocks(row)
            self._lay_scratch(row)
            first = min(self._slots.first_gap(blocks, num_tokens), num_tokens - 1)
            end = min(num_tokens, first + max(num_left, 1 + self._max_drafts))
            num_left = max(0, num_left - (end - first))
            self._slots.fill(blocks, first, end)
            reads.append(_run(row, first, end - first, is_sampled=end == num_tokens))
        return reads

    def _lay_scratch(self, row: int) -> None:
        """Let the row's table go on, behind its blocks, for tokens that the target has no block for yet."""
        first = self._first_scratch_id + row * self._num_scratch
        place = self._num_blocks[row]
        behind = self._table.block_table[row, place : place + self._num_scratch]
        behind[:] = np.arange(first, first + len(behind))

    def _run_of_draft(self, row: int, place: int) -> ScheduledRow:
        return _run(row, int(self._table.num_tokens[row]) + place, 1, is_sampled=True)

    def _run(self, runs: Sequence[ScheduledRow], guess_by_row: dict[int, list[int]]) -> None:
        """Compute tokens, and add a token to the guess of each row that is sampled, unless none can be chosen."""
        started_s = time.perf_counter()
        logits = self._step.run(build_step_batch(runs, self._table))
        rows = np.array([run.row for run in runs if run.is_sampled], np.int32)  # [S]
        if len(rows):
            places = np.array([len(guess_by_row.get(row, ())) for row in rows.tolist()], np.int32)
            sampling = build_sampling_batch(rows, places, self._table, self._vocab_size)
            sampling = replace(sampling, num_logprobs=np.full(len(rows), NO_LOGPROBS, np.int32))
            token_ids = self._step.sample(logits, sampling).token_ids
            for row, place, token_id in zip(rows.tolist(), places.tolist(), token_ids.tolist(), strict=True):
                if token_id >= 0:
                    self._table.write_draft(row, place, token_id)
                    guess_by_row.setdefault(row, []).append(token_id)
        self._pass.add(sum(run.num_scheduled_tokens for run in runs), time.perf_counter() - started_s)


def num_scratch_blocks(max_drafts: int) -> int:
    """Blocks that the drafts of a row may need behind its own: the last token and all drafts but one."""
    return -(-max_drafts // BLOCK_SIZE)


def _run(row: int, first: int, num_tokens: int, *, is_sampled: bool) -> ScheduledRow:
    return ScheduledRow(row, first, num_tokens, is_sampled, block_start=0, block_ids=())
