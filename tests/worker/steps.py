"""Makers of steps for the worker's tests, and a model without weights to run them on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from octavo.backends.ops import SampledBatch, SamplingBatch, StepBatch
from octavo.core.messages import NewRow, ScheduledRow, SchedulerOutput
from octavo.core.sampling_params import SamplingParams
from octavo.worker.input_batch import build_sampling_batch


def new_row(row, token_ids, *, params=None, num_prompt_tokens=None, seed=0, stop_token_ids=(), bad_word_token_ids=()):
    return NewRow(
        row=row,
        token_ids=tuple(token_ids),
        num_prompt_tokens=len(token_ids) if num_prompt_tokens is None else num_prompt_tokens,
        sampling_params=params or SamplingParams(),
        seed=seed,
        stop_token_ids=tuple(stop_token_ids),
        bad_word_token_ids=tuple(bad_word_token_ids),
    )


def entry(row, num_computed_tokens, num_scheduled_tokens, *, is_sampled=True, blocks=(), block_start=0, drafts=()):
    return ScheduledRow(
        row=row,
        num_computed_tokens=num_computed_tokens,
        num_scheduled_tokens=num_scheduled_tokens,
        is_sampled=is_sampled,
        block_start=block_start,
        block_ids=tuple(blocks),
        draft_token_ids=tuple(drafts),
    )


def step(*scheduled, step_id=0, **fields):
    num_tokens = sum(row.num_scheduled_tokens for row in scheduled)
    return SchedulerOutput(step_id=step_id, num_tokens=num_tokens, scheduled=tuple(scheduled), **fields)


def sampling_batch(rows, table, vocab_size, num_drafts=0):
    """How each of these rows chooses the token after its known ones and so many drafts."""
    return build_sampling_batch(rows, np.full(len(rows), num_drafts, np.int32), table, vocab_size)


@dataclass
class RecordingKV:
    """A KV cache that only notes what is asked of it."""

    events: list
    layers: Sequence = ()

    def copy_blocks(self, pairs):
        self.events.extend(("copy", source, destination) for source, destination in pairs)


@dataclass
class NextIdStep:
    """A model whose next token is its last one plus 1. It keeps the batches it was given."""

    vocab_size: int = 100
    refused_rows: dict[int, int] = field(default_factory=dict)  # rows of logits without a choice, and the reason
    events: list = field(default_factory=list)
    batches: list[StepBatch] = field(default_factory=list)
    sampling: list[SamplingBatch] = field(default_factory=list)

    def run(self, batch):
        self.events.append(("run", batch.num_tokens))
        self.batches.append(batch)
        return np.eye(self.vocab_size, dtype=np.float32)[(batch.input_ids[batch.logits_rows] + 1) % self.vocab_size]

    def sample(self, logits, sampling):
        self.sampling.append(sampling)
        token_ids = logits.argmax(axis=1).astype(np.int32)
        for row, reason in self.refused_rows.items():
            token_ids[row] = reason
        num_rows, k = len(logits), int(max(0, sampling.num_logprobs.max()))
        return SampledBatch(
            token_ids=token_ids,
            logprob=-np.arange(num_rows, dtype=np.float32) - 0.5,
            rank=np.ones(num_rows, np.int32),
            top_ids=np.tile(np.arange(k, dtype=np.int32), (num_rows, 1)),
            top_logprobs=-np.tile(np.arange(k, dtype=np.float32), (num_rows, 1)),
        )
