from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octavo.core.sampling_params import SamplingParams
from octavo.structured.compiler import GrammarCompiler
from octavo.worker.request_table import NO_LOGPROBS, RequestTable
from tests.worker.steps import entry, new_row, step


@pytest.fixture
def table() -> RequestTable:
    return RequestTable(GrammarCompiler(), max_num_seqs=4, max_model_len=50)


def test_a_new_row_takes_its_tokens_and_parameters(table):
    params = SamplingParams(temperature=0.5, top_k=7, top_p=0.25, min_p=0.125, min_tokens=3, logprobs=2)
    row = new_row(2, (5, 6, 7), params=params, num_prompt_tokens=2, seed=2**64 - 1, stop_token_ids=(9, 8))
    table.apply(step(new_rows=(row,)))

    assert table.token_ids[2, :3].tolist() == [5, 6, 7]
    assert (table.num_tokens[2], table.num_prompt_tokens[2], table.min_tokens[2]) == (3, 2, 3)
    assert table.seed[2] == np.uint64(2**64 - 1)
    assert table.stop_token_ids[2] == (9, 8)
    assert (table.temperature[2], table.top_k[2], table.top_p[2], table.min_p[2]) == (0.5, 7, 0.25, 0.125)
    assert table.num_logprobs[2] == 2


def test_the_next_request_of_a_row_inherits_nothing(table):
    rules: dict[str, Any] = {
        "repetition_penalty": 2,
        "frequency_penalty": 1,
        "presence_penalty": 1,
        "logit_bias": {1: 1},
    }
    params = SamplingParams(temperature=0.0, top_k=7, top_p=0.25, min_p=0.125, min_tokens=3, logprobs=2, **rules)
    old = new_row(1, range(20), params=params, seed=3, stop_token_ids=(9,))
    table.apply(step(entry(1, 0, 20, blocks=(3, 2)), new_rows=(old,)))
    table.apply(step(entry(1, 0, 2, blocks=(4,)), freed_rows=(1,), new_rows=(new_row(1, (5, 6)),)))

    assert (table.num_tokens[1], table.num_prompt_tokens[1], table.min_tokens[1], table.seed[1]) == (2, 2, 0, 0)
    assert (table.temperature[1], table.top_k[1], table.top_p[1], table.min_p[1]) == (1.0, 0, 1.0, 0.0)
    assert (table.stop_token_ids[1], table.num_logprobs[1]) == ((), NO_LOGPROBS)
    assert (table.repetition_penalty[1], table.frequency_penalty[1], table.presence_penalty[1]) == (1, 0, 0)
    assert not table.rules_by_row
    assert table.block_table[1, 0] == 4


def test_blocks_follow_those_before_them_and_replace_a_copied_one(table):
    table.apply(step(entry(0, 0, 20, blocks=(7, 5)), new_rows=(new_row(0, range(20)),)))
    table.apply(step(entry(0, 20, 1, block_start=1, blocks=(6,))))  # copy on write of block 5
    table.apply(step(entry(0, 21, 1, block_start=2)))
    table.apply(step(entry(0, 32, 1, block_start=2, blocks=(1,))))

    assert table.block_table[0, :3].tolist() == [7, 6, 1]


def test_appended_tokens_follow_the_last_one_up_to_the_models_length(table):
    table.apply(step(new_rows=(new_row(0, range(49)), new_row(3, (1, 2)))))
    table.append(np.array([3, 0], np.int32), np.array([30, 31], np.int32))

    assert table.token_ids[3, :3].tolist() == [1, 2, 30]
    assert table.token_ids[0, 48:].tolist() == [48, 31]
    assert table.num_tokens.tolist() == [50, 0, 0, 3]
