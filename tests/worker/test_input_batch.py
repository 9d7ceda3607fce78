from __future__ import annotations

import numpy as np
import pytest

from octavo.core.sampling_params import SamplingParams
from octavo.worker.input_batch import build_sampling_batch, build_step_batch
from octavo.worker.request_table import RequestTable
from tests.worker.steps import entry, new_row, step


def step_batch(table, output):
    table.apply(output)
    return build_step_batch(output.scheduled, table)


@pytest.fixture
def table() -> RequestTable:
    return RequestTable(max_num_seqs=4, max_model_len=64)


def test_a_chunk_a_decode_and_a_whole_prompt_lie_end_to_end(table):
    rows = (new_row(0, range(100, 140)), new_row(2, range(200, 218)), new_row(3, (7, 8)))
    table.apply(step(entry(2, 0, 17, blocks=(4, 9)), new_rows=rows))
    batch = step_batch(
        table,
        step(
            entry(0, 14, 4, is_sampled=False, blocks=(5, 6, 3)),
            entry(2, 17, 1),
            entry(3, 0, 2, blocks=(1,)),
        ),
    )

    assert batch.input_ids.tolist() == [114, 115, 116, 117, 217, 7, 8]
    assert batch.positions.tolist() == [14, 15, 16, 17, 17, 0, 1]
    assert batch.slot_mapping.tolist() == [5 * 16 + 14, 5 * 16 + 15, 6 * 16, 6 * 16 + 1, 9 * 16 + 1, 16, 17]
    assert batch.query_start_loc.tolist() == [0, 4, 5, 7]
    assert batch.seq_lens.tolist() == [18, 18, 2]
    assert batch.block_table.tolist()[0] == [5, 6]
    assert batch.block_table.tolist()[1] == [4, 9]
    assert batch.block_table[2, 0] == 1
    assert batch.logits_rows.tolist() == [4, 6]


def test_arrays_are_contiguous_and_of_the_types_the_ops_name(table):
    output = step(entry(1, 0, 20, blocks=(2, 3)), entry(0, 0, 1, blocks=(1,)))
    table.apply(step(new_rows=(new_row(1, range(20)), new_row(0, (1,)))))
    batch = step_batch(table, output)
    for name in (
        "input_ids",
        "positions",
        "slot_mapping",
        "query_start_loc",
        "seq_lens",
        "block_table",
        "logits_rows",
    ):
        array = getattr(batch, name)
        assert (array.dtype, array.flags.c_contiguous) == (np.int32, True), name
    sampling = build_sampling_batch(np.array([1, 0], np.int32), table, 50)
    for name, dtype in (
        ("temperature", np.float32),
        ("top_k", np.int32),
        ("top_p", np.float32),
        ("min_p", np.float32),
        ("seed", np.uint64),
        ("output_index", np.uint64),
        ("num_logprobs", np.int32),
        ("banned_start", np.int32),
        ("banned_ids", np.int32),
    ):
        array = getattr(sampling, name)
        assert (array.dtype, array.flags.c_contiguous) == (dtype, True), name


def test_the_draw_is_counted_in_output_tokens_also_after_a_preemption(table):
    table.apply(step(new_rows=(new_row(0, range(5), num_prompt_tokens=2, seed=77), new_row(1, (1, 2)))))
    table.append(np.array([0], np.int32), np.array([9], np.int32))
    sampling = build_sampling_batch(np.array([0, 1], np.int32), table, 50)

    assert sampling.output_index.tolist() == [4, 0]
    assert sampling.seed.tolist() == [77, 0]
    assert sampling.vocab_size == 50


def test_stop_ids_are_banned_until_min_tokens_are_out(table):
    waiting = SamplingParams(min_tokens=2)
    rows = (
        new_row(0, (1,), params=waiting, stop_token_ids=(5, 6)),
        new_row(1, (1,), params=SamplingParams(), stop_token_ids=(5,)),
        new_row(2, (1, 2, 3), params=waiting, num_prompt_tokens=1, stop_token_ids=(8,)),
        new_row(3, (1, 2), params=waiting, num_prompt_tokens=1, stop_token_ids=(7,)),
    )
    table.apply(step(new_rows=rows))
    sampling = build_sampling_batch(np.arange(4, dtype=np.int32), table, 50)

    assert sampling.banned_start.tolist() == [0, 2, 2, 2, 3]
    assert sampling.banned_ids.tolist() == [5, 6, 7]
