from __future__ import annotations

import pytest

from octavo.backends.ops import NOT_FINITE, NOTHING_LEFT, KVShape
from octavo.config import ModelConfig
from octavo.core.messages import SampledRow, TokenLogprobs
from octavo.core.sampling_params import SamplingParams
from octavo.executor.in_process import InProcessExecutor
from octavo.structured.compiler import GrammarCompiler
from octavo.worker.kv_cache import kv_shape
from octavo.worker.model_runner import ModelRunner
from octavo.worker.request_table import RequestTable
from tests.worker.steps import NextIdStep, RecordingKV, entry, new_row, step


def make_runner(model: NextIdStep) -> ModelRunner:
    table = RequestTable(GrammarCompiler(), max_num_seqs=4, max_model_len=64)
    return ModelRunner(model, RecordingKV(model.events), table, vocab_size=90)


def test_only_rows_that_reach_their_last_token_are_sampled():
    model = NextIdStep()
    runner = make_runner(model)
    output = runner.run(
        step(
            entry(0, 0, 2, is_sampled=False, blocks=(1,)),
            entry(1, 0, 3, blocks=(2,)),
            step_id=5,
            new_rows=(new_row(0, (10, 11, 12)), new_row(1, (20, 21, 22))),
        )
    )
    assert output.step_id == 5
    assert output.sampled == (SampledRow(1, (23,)),)
    assert model.sampling[0].vocab_size == 90


def test_the_worker_keeps_sampled_tokens_itself():
    runner = make_runner(model := NextIdStep())
    runner.run(step(entry(1, 0, 3, blocks=(2,)), new_rows=(new_row(1, (20, 21, 22)),)))
    output = runner.run(step(entry(1, 3, 1)))
    assert output.sampled == (SampledRow(1, (24,)),)
    assert model.batches[1].input_ids.tolist() == [23]
    assert model.sampling[1].output_index.tolist() == [1]


def test_blocks_are_copied_in_order_before_any_kv_is_written():
    runner = make_runner(model := NextIdStep())
    runner.run(
        step(entry(0, 0, 1, blocks=(1,)), new_rows=(new_row(0, (10,)),), block_copies=((3, 4), (4, 5), (3, 6))),
    )
    assert model.events == [("copy", 3, 4), ("copy", 4, 5), ("copy", 3, 6), ("run", 1)]


def test_a_step_that_samples_nothing_and_a_step_that_runs_nothing():
    runner = make_runner(model := NextIdStep())
    chunk = step(entry(0, 0, 1, is_sampled=False, blocks=(1,)), step_id=1, new_rows=(new_row(0, (10, 11)),))
    assert runner.run(chunk).sampled == ()
    assert runner.run(step(step_id=2, freed_rows=(0,))).sampled == ()
    assert (len(model.batches), len(model.sampling)) == (1, 0)


def test_logits_that_allow_no_choice_end_that_row_alone():
    runner = make_runner(model := NextIdStep(refused_rows={0: NOT_FINITE, 2: NOTHING_LEFT}))
    scheduled = step(
        *(entry(row, 0, 1, blocks=(row,)) for row in range(3)),
        new_rows=tuple(new_row(row, (10 * row,)) for row in range(3)),
    )
    broken, sound, cornered = runner.run(scheduled).sampled
    assert broken == SampledRow(0, (), error="the model's logits are not finite")
    assert sound == SampledRow(1, (11,))
    assert cornered.error is not None and "no token may come next" in cornered.error
    model.refused_rows = {}
    assert runner.run(step(entry(1, 1, 1))).sampled == (SampledRow(1, (12,)),)


def test_each_row_gets_the_log_probabilities_it_asked_for():
    runner = make_runner(NextIdStep())
    wishes = (None, 0, 2)
    rows = tuple(new_row(i, (i,), params=SamplingParams(logprobs=wish)) for i, wish in enumerate(wishes))
    sampled = runner.run(step(*(entry(i, 0, 1, blocks=(i,)) for i in range(3)), new_rows=rows)).sampled
    assert sampled[0].logprobs == ()
    assert sampled[1].logprobs == (TokenLogprobs(-1.5, 1, ()),)
    assert sampled[2].logprobs == (TokenLogprobs(-2.5, 1, ((0, 0.0), (1, -1.0))),)


def drafting(*drafts, start=0, prompt=(10,), params=None, **fields):
    """A step of one row that verifies drafts after `prompt`, and the run that comes with it."""
    run = entry(0, start, len(prompt) - start + len(drafts), blocks=(1,), drafts=drafts)
    return step(run, new_rows=(new_row(0, prompt, params=params),), **fields)


@pytest.mark.parametrize(
    ("drafts", "token_ids"),
    [
        ((11, 12), (11, 12, 13)),
        ((11, 50, 51), (11, 12)),
        ((50, 12, 13), (11,)),
    ],
)
def test_drafts_stand_as_far_as_they_are_what_would_be_chosen(drafts, token_ids):
    runner = make_runner(model := NextIdStep())
    assert runner.run(drafting(*drafts)).sampled == (SampledRow(0, token_ids),)
    assert model.batches[0].input_ids.tolist() == [10, *drafts]
    assert model.batches[0].logits_rows.tolist() == list(range(1 + len(drafts)))
    assert model.sampling[0].output_index.tolist() == list(range(1 + len(drafts)))
    # The next step goes on behind the last token, over what was written for a wrong draft.
    assert runner.run(step(entry(0, len(token_ids), 1))).sampled == (SampledRow(0, (token_ids[-1] + 1,)),)
    assert model.batches[1].input_ids.tolist() == [token_ids[-1]]


def test_drafts_and_rows_without_any_share_a_step():
    runner = make_runner(model := NextIdStep())
    rows = (new_row(0, (10,)), new_row(1, (20, 21)), new_row(2, (30, 31)), new_row(3, (40,)))
    runs = (
        entry(3, 0, 3, blocks=(4,), drafts=(41, 7)),
        entry(1, 0, 1, is_sampled=False, blocks=(2,)),
        entry(2, 0, 2, blocks=(3,)),
        entry(0, 0, 2, blocks=(1,), drafts=(11,)),
    )
    sampled = runner.run(step(*runs, new_rows=rows)).sampled
    assert sampled == (SampledRow(3, (41, 42)), SampledRow(2, (32,)), SampledRow(0, (11, 12)))
    assert model.batches[0].logits_rows.tolist() == [0, 1, 2, 5, 6, 7]


def test_each_verified_token_has_its_log_probabilities():
    runner = make_runner(NextIdStep())
    (sampled,) = runner.run(drafting(11, 50, 51, params=SamplingParams(logprobs=0))).sampled
    assert sampled.logprobs == (TokenLogprobs(-0.5, 1, ()), TokenLogprobs(-1.5, 1, ()))


def test_a_place_without_a_choice_ends_the_row_when_it_is_its_turn():
    runner = make_runner(model := NextIdStep(refused_rows={1: NOTHING_LEFT}))
    assert runner.run(drafting(11, 12)).sampled == (SampledRow(0, (11,)),)
    model.refused_rows = {0: NOTHING_LEFT}
    (failed,) = runner.run(step(entry(0, 1, 1))).sampled
    assert model.batches[1].input_ids.tolist() == [11]
    assert failed.error is not None and "no token may come next" in failed.error


def test_an_executor_runs_until_it_is_closed():
    executor = InProcessExecutor(make_runner(NextIdStep()))
    handle = executor.execute(step(entry(0, 0, 1, blocks=(1,)), new_rows=(new_row(0, (10,)),)))
    assert handle.result().sampled == (SampledRow(0, (11,)),)
    executor.close()
    executor.close()
    with pytest.raises(RuntimeError, match="closed"):
        executor.execute(step())


def test_the_shape_of_a_kv_cache_is_the_models():
    model = ModelConfig("llama", 320, 64, 128, 2, 4, 2, 16, 256, 1e-5, 1e4)
    shape = kv_shape(model, 9, "int8")
    assert shape == KVShape(num_layers=2, num_blocks=9, block_size=16, num_kv_heads=2, head_dim=16, dtype="int8")
