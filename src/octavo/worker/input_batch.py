"""A step's rows as the arrays a backend runs: who runs which tokens, where their KV goes, how each row samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.backends.ops import IdLists, Int32Array, MaskArray, SamplingBatch, StepBatch
from octavo.config import BLOCK_SIZE
from octavo.core.messages import ScheduledRow
from octavo.structured.matcher import Matcher
from octavo.worker.request_table import RequestTable


def build_step_batch(scheduled: Sequence[ScheduledRow], table: RequestTable) -> StepBatch:
    """Lay the tokens of R rows, at least one, end to end: the requests in the order given, T tokens in all.

    Only a row with `is_sampled` needs logits, and those of its last token. (A row with d drafts runs them as its
    last d tokens and will need d + 1 rows of logits.)
    """
    num_rows = len(scheduled)
    rows = np.fromiter((entry.row for entry in scheduled), np.int32, num_rows)  # [R]
    starts = np.fromiter((entry.num_computed_tokens for entry in scheduled), np.int32, num_rows)
    query_lens = np.fromiter((entry.num_scheduled_tokens for entry in scheduled), np.int32, num_rows)
    is_sampled = np.fromiter((entry.is_sampled for entry in scheduled), np.bool_, num_rows)

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
        logits_rows=query_start_loc[1:][is_sampled] - 1,
    )


def build_sampling_batch(rows: Int32Array, table: RequestTable, vocab_size: int) -> SamplingBatch:
    """How each of these S rows chooses the token after its last. Ids from `vocab_size` up are never chosen."""
    num_output_tokens = table.num_tokens[rows] - table.num_prompt_tokens[rows]
    rules = [table.rules_by_row.get(row) for row in rows.tolist()]
    counts = [rule.counts if rule else None for rule in rules]
    masks, mask_index = _masks([rule.matcher if rule else None for rule in rules], vocab_size)
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
        allowed=_id_lists([rule.allowed_ids if rule else () for rule in rules]),
        banned=_id_lists(_banned_ids(rows, table, num_output_tokens)),
        biased=_id_lists([rule.biased_ids if rule else () for rule in rules]),
        bias=_joined([rule.bias if rule else () for rule in rules], np.float32),
        seen=_id_lists([count.ids if count else () for count in counts]),
        output_counts=_joined([count.output_counts if count else () for count in counts], np.int32),
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


def _masks(matchers: Sequence[Matcher | None], vocab_size: int) -> tuple[MaskArray, Int32Array]:
    """The masks of the rows that have a grammar, and which is whose."""
    has_mask = np.array([matcher is not None for matcher in matchers])
    masks = np.empty((np.count_nonzero(has_mask), -(-vocab_size // 32)), np.uint32)
    for mask, matcher in zip(masks, filter(None, matchers), strict=True):
        matcher.fill_mask(mask)
    return masks, np.where(has_mask, np.cumsum(has_mask) - 1, -1).astype(np.int32)


def _banned_ids(rows: Int32Array, table: RequestTable, num_output_tokens: Int32Array) -> list[Sequence[int]]:
    """What would complete a bad word, and what would end the request before its min_tokens are out.

    When a grammar is through, ends are all that may follow: they fill up what is left of min_tokens.
    """
    banned: list[Sequence[int]] = []
    for row, must_go_on in zip(rows.tolist(), (num_output_tokens < table.min_tokens[rows]).tolist(), strict=True):
        rules = table.rules_by_row.get(row)
        end_ids = table.stop_token_ids[row] if must_go_on and not (rules and rules.is_complete) else ()
        banned.append((*end_ids, *rules.banned_ids) if rules else end_ids)
    return banned


def _id_lists(ids_by_row: Sequence[Any]) -> IdLists:
    start = np.zeros(len(ids_by_row) + 1, np.int32)
    np.cumsum([len(ids) for ids in ids_by_row], out=start[1:])
    return IdLists(start, _joined(ids_by_row, np.int32))


def _joined(lists: Sequence[Any], dtype: type[np.generic]) -> NDArray[Any]:
    """All lists end to end; most are empty."""
    return np.concatenate([np.empty(0, dtype), *filter(len, lists)], dtype=dtype)
