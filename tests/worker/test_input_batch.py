from __future__ import annotations

from operator import attrgetter

import numpy as np
import pytest

from octavo.core.sampling_params import SamplingParams
from octavo.structured.compiler import GrammarCompiler
from octavo.worker.input_batch import build_step_batch
from octavo.worker.request_table import RequestTable
from tests.backends.sampling_batches import LISTS
from tests.worker.steps import entry, new_row, sampling_batch, step


def step_batch(table, output):
    table.apply(output)
    return build_step_batch(output.scheduled, table)


@pytest.fixture
def table() -> RequestTable:
    return RequestTable(GrammarCompiler(), max_num_seqs=4, max_model_len=64)


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
    table.apply(step(new_rows=(new_row(1, range(20), params=RULES), new_row(0, (1,)))))
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
    sampling = sampling_batch(np.array([1, 0], np.int32), table, 50)
    for name, dtype in (
        ("temperature", np.float32),
        ("top_k", np.int32),
        ("top_p", np.float32),
        ("min_p", np.float32),
        ("repetition_penalty", np.float32),
        ("frequency_penalty", np.float32),
        ("presence_penalty", np.float32),
        ("seed", np.uint64),
        ("output_index", np.uint64),
        ("num_logprobs", np.int32),
        ("bias", np.float32),
        ("output_counts", np.int32),
        *((f"{lists}.{part}", np.int32) for lists in LISTS for part in ("start", "ids")),
    ):
        array = attrgetter(name)(sampling)
        assert (array.dtype, array.flags.c_contiguous) == (dtype, True), name


def test_the_draw_is_counted_in_output_tokens_also_after_a_preemption(table):
    table.apply(step(new_rows=(new_row(0, range(5), num_prompt_tokens=2, seed=77), new_row(1, (1, 2)))))
    table.append(np.array([0], np.int32), np.array([9], np.int32))
    sampling = sampling_batch(np.array([0, 1], np.int32), table, 50)

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
    sampling = sampling_batch(np.arange(4, dtype=np.int32), table, 50)

    assert sampling.banned.start.tolist() == [0, 2, 2, 2, 3]
    assert sampling.banned.ids.tolist() == [5, 6, 7]


def by_row(lists, values=None):
    """The lists of ids, or for each id its value."""
    parts = [lists.of_row(i) for i in range(len(lists.start) - 1)]
    if values is None:
        return [lists.ids[part].tolist() for part in parts]
    return [dict(zip(lists.ids[part].tolist(), values[part].tolist(), strict=True)) for part in parts]


RULES = SamplingParams(
    presence_penalty=0.5,
    repetition_penalty=1.5,
    logit_bias=((3, 2.5), (4, -1)),
    allowed_token_ids=(3, 4, 5),
    min_tokens=4,
)


def test_each_row_has_the_rules_of_its_request(table):
    rows = (
        new_row(0, (1,)),
        new_row(1, (7, 8, 7, 3, 3), num_prompt_tokens=3, params=RULES, stop_token_ids=(2,), bad_word_token_ids=((9,),)),
        new_row(3, (7, 8, 3), num_prompt_tokens=2, params=SamplingParams(frequency_penalty=-2)),
    )
    table.apply(step(new_rows=rows))
    sampling = sampling_batch(np.array([3, 0, 1], np.int32), table, 50)

    assert sampling.repetition_penalty.tolist() == [1, 1, 1.5]
    assert sampling.frequency_penalty.tolist() == [-2, 0, 0]
    assert sampling.presence_penalty.tolist() == [0, 0, 0.5]
    assert by_row(sampling.allowed) == [[], [], [3, 4, 5]]
    assert by_row(sampling.banned) == [[], [], [2, 9]]
    assert by_row(sampling.biased, sampling.bias) == [{}, {}, {3: 2.5, 4: -1}]
    # The prompt counts for a repetition penalty alone.
    assert by_row(sampling.seen, sampling.output_counts) == [{3: 1}, {}, {7: 0, 8: 0, 3: 2}]


def test_the_rules_follow_the_output(table):
    rows = (
        new_row(0, (1, 2), params=SamplingParams(presence_penalty=1), bad_word_token_ids=((5, 6), (5, 5), (6, 5, 8))),
        new_row(1, (1, 5)),
    )
    table.apply(step(new_rows=rows))
    banned = []
    for token_id in (6, 5, 5, 9):
        table.append(np.array([0, 1], np.int32), np.array([token_id, 5], np.int32))
        sampling = sampling_batch(np.arange(2, dtype=np.int32), table, 50)
        banned.append(by_row(sampling.banned)[0])
    assert banned == [[], [6, 5, 8], [6, 5], []]
    assert by_row(sampling.seen, sampling.output_counts) == [{6: 1, 5: 2, 9: 1}, {}]


def test_after_a_preemption_prompt_and_output_are_told_apart_as_before(table):
    """Whether a row has lived through its output or enters with it makes no difference."""
    words = ((8, 9), (3, 3, 4), (6,))
    table.apply(step(new_rows=(new_row(0, (7, 8), params=RULES, bad_word_token_ids=words),)))
    for token_id in (3, 5, 3, 3):
        table.append(np.array([0], np.int32), np.array([token_id], np.int32))
    again = new_row(2, (7, 8, 3, 5, 3, 3), num_prompt_tokens=2, params=RULES, bad_word_token_ids=words)
    table.apply(step(freed_rows=(1,), new_rows=(again,)))
    sampling = sampling_batch(np.array([0, 2], np.int32), table, 50)

    assert by_row(sampling.banned) == [[6, 4]] * 2
    assert by_row(sampling.seen, sampling.output_counts) == [{7: 0, 8: 0, 3: 3, 5: 1}] * 2


def test_the_rules_look_ahead_over_drafts_and_forget_them(table):
    """After each draft they are what they will be once it is a token, and then again what they were."""
    words = ((8, 9), (3, 3, 4), (6,))
    drafts = (3, 8, 11, 3, 11)
    row = new_row(0, (7, 8, 3), num_prompt_tokens=2, params=RULES, stop_token_ids=(2,), bad_word_token_ids=words)
    table.apply(step(new_rows=(row,)))
    table.apply(step(entry(0, 0, 8, blocks=(1,), drafts=drafts)))
    ahead = [rules_of(sampling_batch(np.array([0], np.int32), table, 50, num)) for num in range(len(drafts) + 1)]
    assert ahead[1][0] == [[2, 6, 4]]
    for num, draft in enumerate(drafts):
        assert rules_of(sampling_batch(np.array([0], np.int32), table, 50)) == ahead[num]
        table.append(np.array([0], np.int32), np.array([draft], np.int32))
    assert rules_of(sampling_batch(np.array([0], np.int32), table, 50)) == ahead[-1]


def rules_of(sampling):
    seen = by_row(sampling.seen, sampling.output_counts)
    return by_row(sampling.banned), seen, sampling.output_index.tolist()
