"""A step's rows as the arrays a backend runs: who runs which tokens, where their KV goes, how each row samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo.backends.ops import Int32Array, SamplingBatch, StepBatch
from octavo.config import BLOCK_SIZE
from octavo.core.messages import ScheduledRow
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
    is_kept_alive = num_output_tokens < table.min_tokens[rows]
    banned = [
        table.stop_token_ids[row] if kept_alive else ()
        for row, kept_alive in zip(rows.tolist(), is_kept_alive.tolist(), strict=True)
    ]
    banned_start = np.zeros(len(rows) + 1, np.int32)
    np.cumsum([len(ids) for ids in banned], out=banned_start[1:])
    return SamplingBatch(
        temperature=table.temperature[rows],
        top_k=table.top_k[rows],
        top_p=table.top_p[rows],
        min_p=table.min_p[rows],
        seed=table.seed[rows],
        output_index=num_output_tokens.astype(np.uint64),
        num_logprobs=table.num_logprobs[rows],
        banned_start=banned_start,
        banned_ids=np.fromiter((token_id for ids in banned for token_id in ids), np.int32, int(banned_start[-1])),
        vocab_size=vocab_size,
    )
