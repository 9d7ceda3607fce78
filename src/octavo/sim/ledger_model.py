"""LedgerModel: an executor that keeps books on every KV slot and stops at the first wrong entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from octavo.core.executor import FinishedStep
from octavo.core.messages import ModelRunnerOutput, NewRow, SampledRow, ScheduledRow, SchedulerOutput, TokenLogprobs
from octavo.sim.solo import ROOT_DIGEST, choose_token, extend_digest, score_next

NEVER_WRITTEN = -1  # no digest
CUT_RATE = 0.03  # of right drafts


class LedgerError(AssertionError):
    """A step that no correct scheduler asks for, or a slot that does not hold what its sequence needs."""


class Noise:
    """What the ledger model does at random: it guesses drafts, right and wrong ones, and sometimes fails a row."""

    def __init__(self, random: Random, *, max_drafts: int = 0, draft_accuracy: float = 0.7, error_rate: float = 0.0):
        self._random = random
        self._max_drafts = max_drafts
        self._draft_accuracy = draft_accuracy
        self.error_rate = error_rate

    def num_drafts(self) -> int:
        """How many tokens to propose this time."""
        return self._random.randint(0, self._max_drafts) if self._max_drafts else 0

    def draft(self, true_token_id: int, vocab_size: int) -> int:
        """A guess at a token."""
        is_right = self._random.random() < self._draft_accuracy
        return true_token_id if is_right else self._random.randrange(vocab_size)

    def cuts_short(self) -> bool:
        """Whether nothing can be chosen after a right draft."""
        return self._max_drafts > 0 and self._random.random() < CUT_RATE

    def fails(self) -> bool:
        """Whether this row's computation comes to nothing this time."""
        return self.error_rate > 0 and self._random.random() < self.error_rate


class LedgerRow:
    """What a worker knows of one running request: only what it was told by SchedulerOutputs."""

    __slots__ = (
        "block_ids",
        "digests",
        "draft_token_ids",
        "num_computed_tokens",
        "num_prompt_tokens",
        "scores",
        "seed",
        "token_ids",
    )

    def __init__(self, new_row: NewRow) -> None:
        self.token_ids = list(new_row.token_ids)
        self.num_prompt_tokens = new_row.num_prompt_tokens
        self.seed = new_row.seed
        self.digests: list[int] = []  # what the slots of these tokens must hold
        self.block_ids: list[int] = []
        self.num_computed_tokens = -1  # the first scheduled run says where it begins: after the prefix hit
        self.draft_token_ids: tuple[int, ...] = ()  # proposed, not yet verified
        self.scores: list[TokenLogprobs] | None = [] if new_row.has_prompt_logprobs else None
        self.extend_digests()

    def extend_digests(self) -> None:
        """Bring the digests up to the last token."""
        digest = self.digests[-1] if self.digests else ROOT_DIGEST
        for position in range(len(self.digests), len(self.token_ids)):
            digest = extend_digest(digest, self.token_ids[position], position)
            self.digests.append(digest)


class LedgerModel:
    """A model whose KV is a ledger: each slot holds a digest of the slot before, the token and its position.

    Rows and tables follow the SchedulerOutputs alone, as a worker's would. Each run of tokens is written slot by slot
    through the block table; then every slot of the sequence is read back through it and compared with the digests of
    the row's tokens. Raises LedgerError for any difference, and for any step outside the executor's contract.
    """

    def __init__(
        self,
        *,
        num_blocks: int,
        block_size: int,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        vocab_size: int,
        noise: Noise | None = None,
    ) -> None:
        self.block_size = block_size
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.vocab_size = vocab_size
        self.slots = [[NEVER_WRITTEN] * block_size for _ in range(num_blocks)]  # [num_blocks][block_size]
        self.rows: dict[int, LedgerRow] = {}
        self.coverage: Counter[str] = Counter()
        self._noise = noise or Noise(Random(0))
        self._step_id = 0

    def execute(self, scheduled: SchedulerOutput) -> FinishedStep:
        """Carry out a step in the order that SchedulerOutput prescribes."""
        self._check_limits(scheduled)
        for row in scheduled.freed_rows:
            if self.rows.pop(row, None) is None:
                raise LedgerError(f"row {row} is freed and nobody is in it")
        for new_row in scheduled.new_rows:
            self._enter(new_row)
        self._copy_blocks(scheduled.block_copies)
        for entry in scheduled.scheduled:
            self._check_run(entry)
            self._change_table(entry)
        for entry in scheduled.scheduled:
            self._write(entry)
        for entry in scheduled.scheduled:
            self._read(entry)
        sampled = [self._sample(entry) for entry in scheduled.scheduled if entry.is_sampled]
        return FinishedStep(ModelRunnerOutput(scheduled.step_id, tuple(sampled)))

    def close(self) -> None:
        """Forget all rows."""
        self.rows.clear()

    def _check_limits(self, scheduled: SchedulerOutput) -> None:
        self._step_id += 1
        num_tokens = sum(entry.num_scheduled_tokens for entry in scheduled.scheduled)
        rows = {entry.row for entry in scheduled.scheduled}
        if scheduled.step_id != self._step_id:
            raise LedgerError(f"step {scheduled.step_id} comes where step {self._step_id} was due")
        if num_tokens != scheduled.num_tokens or not 0 < num_tokens <= self.max_num_batched_tokens:
            raise LedgerError(
                f"the step says {scheduled.num_tokens} tokens, holds {num_tokens}, limit {self.max_num_batched_tokens}"
            )
        if len(rows) != len(scheduled.scheduled):
            raise LedgerError(f"a row runs twice: {[entry.row for entry in scheduled.scheduled]}")
        missing = {new_row.row for new_row in scheduled.new_rows} - rows
        if missing:
            raise LedgerError(f"rows {missing} enter and run nothing")

    def _enter(self, new_row: NewRow) -> None:
        if new_row.row in self.rows or not 0 <= new_row.row < self.max_num_seqs:
            raise LedgerError(f"row {new_row.row} is given away; in use are {sorted(self.rows)}")
        self.rows[new_row.row] = LedgerRow(new_row)

    def _copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        sources, destinations = set(), set()
        for source, destination in copies:
            if source == destination or min(source, destination) < 0:
                raise LedgerError(f"block {source} is copied to {destination}")
            self.slots[destination] = self.slots[source].copy()
            self.coverage["copied block is the target of a later copy"] += destination in sources
            self.coverage["copy is copied on"] += source in destinations
            sources.add(source)
            destinations.add(destination)

    def _check_run(self, entry: ScheduledRow) -> None:
        """The run begins where the row's last one ended, and its drafts are those that were proposed."""
        row = self.rows.get(entry.row)
        if row is None:
            raise LedgerError(f"row {entry.row} runs and nobody is in it")
        if row.num_computed_tokens < 0:
            row.num_computed_tokens = entry.num_computed_tokens
        num_known = len(row.token_ids)
        end = entry.num_computed_tokens + entry.num_scheduled_tokens
        is_contiguous = entry.num_computed_tokens == row.num_computed_tokens < num_known
        drafts = row.draft_token_ids[: max(0, end - num_known)]
        if not is_contiguous or entry.num_scheduled_tokens < 1 or end > num_known + len(drafts):
            raise LedgerError(
                f"row {entry.row} runs tokens [{entry.num_computed_tokens}, {end}); "
                f"it has computed {row.num_computed_tokens} of {num_known} and drafted {len(row.draft_token_ids)}"
            )
        if entry.draft_token_ids != drafts or entry.is_sampled != (end >= num_known):
            raise LedgerError(
                f"row {entry.row} verifies drafts {entry.draft_token_ids} of {row.draft_token_ids}, "
                f"is_sampled={entry.is_sampled}, tokens [{entry.num_computed_tokens}, {end}) of {num_known}"
            )

    def _change_table(self, entry: ScheduledRow) -> None:
        row = self.rows[entry.row]
        if not 0 <= entry.block_start <= len(row.block_ids):
            raise LedgerError(
                f"the table of row {entry.row} changes from {entry.block_start}; it has {len(row.block_ids)} blocks"
            )
        self.coverage["duplicate block re-pointed"] += entry.block_start < len(row.block_ids)
        row.block_ids[entry.block_start :] = entry.block_ids
        num_slots = len(row.block_ids) * self.block_size
        if entry.num_computed_tokens + entry.num_scheduled_tokens > num_slots:
            raise LedgerError(f"row {entry.row} has {num_slots} slots, too few for its {entry}")
        if len(set(row.block_ids)) != len(row.block_ids):
            raise LedgerError(f"the table of row {entry.row} names a block twice: {row.block_ids}")

    def _write(self, entry: ScheduledRow) -> None:
        """Write the run's slots, each from the slot before it as the block table shows it."""
        row = self.rows[entry.row]
        size = self.block_size
        first, end = entry.num_computed_tokens, entry.num_computed_tokens + entry.num_scheduled_tokens
        run = row.token_ids[first:end] + list(entry.draft_token_ids)
        before = first - 1
        digest = self.slots[row.block_ids[before // size]][before % size] if first else ROOT_DIGEST
        for position, token_id in enumerate(run, first):
            digest = extend_digest(digest, token_id, position)
            self.slots[row.block_ids[position // size]][position % size] = digest

    def _read(self, entry: ScheduledRow) -> None:
        """Re-read every slot of the sequence's known tokens."""
        row = self.rows[entry.row]
        size = self.block_size
        num_tokens = min(entry.num_computed_tokens + entry.num_scheduled_tokens, len(row.token_ids))
        row.num_computed_tokens = num_tokens
        for start in range(0, num_tokens, size):
            block_id = row.block_ids[start // size]
            expected = row.digests[start : min(start + size, num_tokens)]
            held = self.slots[block_id]
            if held[: len(expected)] != expected:
                offset = next(i for i, digest in enumerate(expected) if held[i] != digest)
                raise LedgerError(
                    f"row {entry.row}: slot {offset} of block {block_id}, which is to hold position {start + offset} "
                    f"of {num_tokens}, holds something else; table {row.block_ids}, run {entry}"
                )
        if row.scores is not None:
            last = min(num_tokens, row.num_prompt_tokens - 1)
            row.scores += map(score_next, row.digests[entry.num_computed_tokens : last])
        self.coverage["chunk split"] += not entry.is_sampled

    def _sample(self, entry: ScheduledRow) -> SampledRow:
        """Verify the drafts, append what is right and one token more, propose anew."""
        row = self.rows[entry.row]
        if self._noise.fails():
            self.coverage["row failed"] += 1
            return SampledRow(entry.row, (), error="the ledger model was told to fail")
        accepted: list[int] = []
        for draft in (*entry.draft_token_ids, None):
            if accepted and self._noise.cuts_short():
                self.coverage["drafts cut short"] += 1
                break
            token_id = self._next_token(row)
            accepted.append(token_id)
            row.token_ids.append(token_id)
            row.extend_digests()
            if token_id != draft:
                break
        self._settle_drafts(row, entry, len(accepted) - 1)
        row.draft_token_ids = self._propose(row)
        scores, row.scores = row.scores or (), None
        return SampledRow(
            entry.row, tuple(accepted), draft_token_ids=row.draft_token_ids, prompt_logprobs=tuple(scores)
        )

    def _settle_drafts(self, row: LedgerRow, entry: ScheduledRow, num_accepted: int) -> None:
        """Count the accepted drafts as computed; the slots of the rejected ones are to be written again."""
        size = self.block_size
        row.num_computed_tokens = len(row.token_ids) - 1
        end = entry.num_computed_tokens + entry.num_scheduled_tokens
        num_rejected = len(entry.draft_token_ids) - num_accepted
        self.coverage["draft accepted"] += num_accepted
        if num_rejected:
            self.coverage[f"draft rejected at position {num_accepted}"] += 1
            is_over_border = (end - 1) // size > (row.num_computed_tokens - 1) // size
            self.coverage["drafts rolled back over a block border"] += is_over_border

    def _next_token(self, row: LedgerRow) -> int:
        output_index = len(row.token_ids) - row.num_prompt_tokens
        return choose_token(row.digests[-1], row.seed, output_index, self.vocab_size)

    def _propose(self, row: LedgerRow) -> tuple[int, ...]:
        """Guess the tokens after the row's last. The first wrong one makes the rest nonsense, as with any drafter."""
        drafts: list[int] = []
        digest = row.digests[-1]
        for position in range(len(row.token_ids), len(row.token_ids) + self._noise.num_drafts()):
            true_token_id = choose_token(digest, row.seed, position - row.num_prompt_tokens, self.vocab_size)
            drafts.append(self._noise.draft(true_token_id, self.vocab_size))
            digest = extend_digest(digest, drafts[-1], position)
        return tuple(drafts)
