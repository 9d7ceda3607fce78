"""A step's rows as the arrays a backend runs: who runs which tokens, where their KV goes, how each row samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.backends.ops import IdLists, Int32Array, MaskArray, SamplingBatch, StepBatch
from octavo.config import BLOCK_SIZE
from octavo.core.messages import ScheduledRow
from octavo.worker.logit_rules import RuleLists
from octavo.worker.request_table import RequestTable

NO_RULES = RuleLists()


def build_step_batch(scheduled: Sequence[ScheduledRow], table: RequestTable) -> StepBatch:
    """Lay the tokens of R rows, at least one, end to end: the requests in the order given, T tokens in all.

    Only a row with `is_sampled` needs logits: those of its last known token and of each draft after it. Drafts stand
    in the table behind the known tokens.
    """
    num_rows = len(scheduled)
    rows = np.fromiter((entry.row for entry in scheduled), np.int32, num_rows)  # [R]
    starts = np.fromiter((entry.num_computed_tokens for entry in scheduled), np.int32, num_rows)
    query_lens = np.fromiter((entry.num_scheduled_tokens for entry in scheduled), np.int32, num_rows)
    num_logits = np.fromiter(map(num_logits_rows, scheduled), np.int32, num_rows)

    query_start_loc = np.zeros(num_rows + 1, np.int32)
    np.cumsum(query_lens, out=query_start_loc[1:])
    seq_lens = starts + query_lens
    row_by_token = np.repeat(rows, query_lens)  # [T]
    # A token's place in its sequence is its place in the batch, moved by the same distance for all of its row.
    positions = np.arange(query_start_loc[-1], dtype=np.int32) + np.repeat(starts - query_start_loc[:-1], query_lens)
    block_ids = table.block_table[row_by_token, positions // BLOCK_SIZE]
    num_blocks = -(-int(seq_lens.max()) // BLOCK_SIZE)
    return StepBatch(
        input_ids=table.token_ids[row_by_token, positions],
        positions=positions,
        slot_mapping=block_ids * BLOCK_SIZE + positions % BLOCK_SIZE,
        query_start_loc=query_start_loc,
        seq_lens=seq_lens,
        block_table=np.ascontiguousarray(table.block_table[rows, :num_blocks]),
        logits_rows=_last_of_each(query_start_loc[1:], num_logits),
    )


def num_logits_rows(entry: ScheduledRow) -> int:
    """Places at which the row chooses a token: after its last known one, and after each draft."""
    return 1 + len(entry.draft_token_ids) if entry.is_sampled else 0


def sampled_places(sampled: Sequence[ScheduledRow]) -> tuple[Int32Array, Int32Array]:
    """The S places of these rows in the order of their logits: whose each is, and how many drafts stand before it."""
    rows = [entry.row for entry in sampled for _ in range(num_logits_rows(entry))]
    num_drafts = [place for entry in sampled for place in range(num_logits_rows(entry))]
    return np.array(rows, np.int32), np.array(num_drafts, np.int32)


def build_sampling_batch(
    rows: Int32Array, num_drafts: Int32Array, table: RequestTable, vocab_size: int
) -> SamplingBatch:
    """How a token is chosen at each of S places: after the known tokens of `rows` and so many of their drafts.

    Ids from `vocab_size` up are never chosen.
    """
    num_output_tokens = table.num_tokens[rows] - table.num_prompt_tokens[rows] + num_drafts
    rules = [
        table.rules_by_row[row].after(table.draft_ids(row, num), vocab_size) if row in table.rules_by_row else NO_RULES
        for row, num in zip(rows.tolist(), num_drafts.tolist(), strict=True)
    ]
    masks, mask_index = _masks([rule.mask for rule in rules], vocab_size)
    return SamplingBatch(
        temperature=table.temperature[rows],
        top_k=table.top_k[rows],
        top_p=table.top_p[rows],
        min_p=table.min_p[rows],
        repetition_penalty=table.repetition_penalty[rows],
        frequency_penalty=table.frequency_penalty[rows],
        presence_penalty=table.presence_penalty[rows],
        seed=table.seed[rows],
        output_index=num_output_tokens.astype(np.uint64),
        num_logprobs=table.num_logprobs[rows],
        masks=masks,
        mask_index=mask_index,
        allowed=_id_lists([rule.allowed_ids for rule in rules]),
        banned=_id_lists(_banned_ids(rows, rules, table, num_output_tokens)),
        biased=_id_lists([rule.biased_ids for rule in rules]),
        bias=_joined([rule.bias for rule in rules], np.float32),
        seen=_id_lists([rule.seen_ids for rule in rules]),
        output_counts=_joined([rule.output_counts for rule in rules], np.int32),
        vocab_size=vocab_size,
    )


def build_scoring_batch(token_ids: Int32Array, num_logprobs: Int32Array, vocab_size: int) -> SamplingBatch:
    """The choice of given tokens, one in each of S rows: made for their log-probabilities."""
    num_rows = len(token_ids)
    zeros, ones = np.zeros(num_rows, np.float32), np.ones(num_rows, np.float32)
    nothing = IdLists(np.zeros(num_rows + 1, np.int32), np.empty(0, np.int32))
    return SamplingBatch(
        temperature=zeros,
        top_k=np.zeros(num_rows, np.int32),
        top_p=ones,
        min_p=zeros,
        repetition_penalty=ones,
        frequency_penalty=zeros,
        presence_penalty=zeros,
        seed=np.zeros(num_rows, np.uint64),
        output_index=np.zeros(num_rows, np.uint64),
        num_logprobs=num_logprobs,
        allowed=IdLists(np.arange(num_rows + 1, dtype=np.int32), token_ids),
        masks=np.empty((0, -(-vocab_size // 32)), np.uint32),
        mask_index=np.full(num_rows, -1, np.int32),
        banned=nothing,
        biased=nothing,
        bias=np.empty(0, np.float32),
        seen=nothing,
        output_counts=np.empty(0, np.int32),
        vocab_size=vocab_size,
    )


def _last_of_each(ends: Int32Array, counts: Int32Array) -> Int32Array:
    """The last `counts[i]` numbers before `ends[i]`, for each i."""
    ends_of_counts = np.cumsum(counts, dtype=np.int32)
    return np.arange(ends_of_counts[-1], dtype=np.int32) + np.repeat(ends - ends_of_counts, counts)


def _masks(masks: Sequence[MaskArray | None], vocab_size: int) -> tuple[MaskArray, Int32Array]:
    """The masks of the places that have one, and which is whose."""
    has_mask = np.array([mask is not None for mask in masks])
    stacked = np.empty((np.count_nonzero(has_mask), -(-vocab_size // 32)), np.uint32)
    for place, mask in zip(stacked, filter(lambda mask: mask is not None, masks), strict=True):
        place[:] = mask
    return stacked, np.where(has_mask, np.cumsum(has_mask) - 1, -1).astype(np.int32)


def _banned_ids(
    rows: Int32Array, rules: Sequence[RuleLists], table: RequestTable, num_output_tokens: Int32Array
) -> list[Sequence[int]]:
    """What would complete a bad word, and what would end the request before its min_tokens are out.

    When a grammar is through, ends are all that may follow: they fill up what is left of min_tokens.
    """
    must_go_on = (num_output_tokens < table.min_tokens[rows]).tolist()
    return [
        (*table.stop_token_ids[row], *rule.banned_ids) if is_short and not rule.is_complete else rule.banned_ids
        for row, rule, is_short in zip(rows.tolist(), rules, must_go_on, strict=True)
    ]


def _id_lists(ids_by_row: Sequence[Any]) -> IdLists:
    start = np.zeros(len(ids_by_row) + 1, np.int32)
    np.cumsum([len(ids) for ids in ids_by_row], out=start[1:])
    return IdLists(start, _joined(ids_by_row, np.int32))


def _joined(lists: Sequence[Any], dtype: type[np.generic]) -> NDArray[Any]:
    """All lists end to end; most are empty."""
    return np.concatenate([np.empty(0, dtype), *filter(len, lists)], dtype=dtype)
