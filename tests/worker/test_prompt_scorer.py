from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from octavo.backends.ops import NOT_FINITE, NOTHING_LEFT
from octavo.core.messages import NewRow, SampledRow
from octavo.core.sampling_params import SamplingParams
from octavo.structured.compiler import GrammarCompiler
from octavo.worker import prompt_scorer
from octavo.worker.model_runner import ModelRunner
from octavo.worker.request_table import RequestTable
from tests.worker.steps import NextIdStep, RecordingKV, entry, new_row, step


@dataclass
class ScoringStep(NextIdStep):
    """Reports as a token's log-probability minus its id, or that the token `refused_id` cannot be had."""

    refused_id: int = -1
    refusal: int = NOT_FINITE

    def sample(self, logits: Any, sampling: Any) -> Any:
        sampled = super().sample(logits, sampling)
        if not len(sampling.allowed.ids):
            return sampled
        assert sampling.allowed.start.tolist() == list(range(len(logits) + 1))
        sampled.token_ids[:] = sampling.allowed.ids
        sampled.logprob[:] = -sampling.allowed.ids
        sampled.token_ids[sampling.allowed.ids == self.refused_id] = self.refusal
        return sampled


def make_runner(model: NextIdStep) -> ModelRunner:
    table = RequestTable(GrammarCompiler(), max_num_seqs=4, max_model_len=64)
    return ModelRunner(model, RecordingKV(model.events), table, vocab_size=90)


def scored_row(row: int, token_ids: tuple[int, ...]) -> NewRow:
    return replace(new_row(row, token_ids, params=SamplingParams(prompt_logprobs=0)), has_prompt_logprobs=True)


def scores(sampled: SampledRow) -> list[float]:
    return [entry.logprob for entry in sampled.prompt_logprobs]


def test_the_ordinary_step_is_one_run():
    runner = make_runner(model := ScoringStep())
    rows = (new_row(0, (10, 11), params=SamplingParams(prompt_logprobs=2)), new_row(1, (20,)))
    runner.run(step(entry(0, 0, 2, blocks=(1,)), entry(1, 0, 1, blocks=(2,)), new_rows=rows))
    assert model.events == [("run", 3)]


def test_each_token_but_the_first_is_scored_with_the_one_before_it():
    runner = make_runner(model := ScoringStep())
    rows = (scored_row(0, (10, 17, 12, 13)), new_row(1, (20, 21)))
    output = runner.run(step(entry(0, 0, 4, blocks=(1,)), entry(1, 0, 2, blocks=(2,)), new_rows=rows))
    first, other = output.sampled
    assert (first.token_ids, scores(first)) == ((14,), [-17, -12, -13])
    assert other == SampledRow(1, (22,))
    assert model.events == [("run", 3), ("run", 3)]  # three to score; then the last of them and the neighbour
    assert runner.run(step(entry(0, 4, 1), entry(1, 2, 1))).sampled[0].prompt_logprobs == ()  # once


@pytest.mark.parametrize("chunks", [(1, 1, 1, 1, 1), (2, 3), (4, 1), (1, 4)])
def test_chunks_add_up(chunks):
    runner = make_runner(ScoringStep())
    start, rows = 0, (scored_row(2, (30, 31, 32, 33, 34)),)
    for number, size in enumerate(chunks):
        is_last = number == len(chunks) - 1
        output = runner.run(
            step(
                entry(2, start, size, is_sampled=is_last, blocks=() if start else (3,), block_start=bool(start)),
                new_rows=() if start else rows,
            )
        )
        start += size
        assert len(output.sampled) == is_last
    assert scores(output.sampled[0]) == [-31, -32, -33, -34]


def test_a_piece_holds_so_many_tokens_and_no_more(monkeypatch):
    monkeypatch.setattr(prompt_scorer, "SCORED_PIECE_TOKENS", 3)
    runner = make_runner(model := ScoringStep())
    rows = (scored_row(0, tuple(range(10, 18))), scored_row(1, (20,)), scored_row(2, (40, 41, 42)))
    output = runner.run(
        step(
            entry(0, 0, 8, blocks=(1,)),
            entry(1, 0, 1, blocks=(2,)),
            entry(2, 0, 3, blocks=(3,)),
            new_rows=rows,
        )
    )
    assert [scores(row) for row in output.sampled] == [[-float(i) for i in range(11, 18)], [], [-41, -42]]
    assert [size for _, size in model.events] == [3, 3, 3, 3]
    assert np.concatenate([batch.input_ids for batch in model.batches[:3]]).tolist() == [*range(10, 17), 40, 41]


def test_a_row_that_is_freed_forgets_what_was_collected():
    runner = make_runner(ScoringStep())
    tokens = (10, 11, 12, 13)
    runner.run(step(entry(0, 0, 2, is_sampled=False, blocks=(1,)), new_rows=(scored_row(0, tokens),)))
    again = step(entry(0, 0, 4, blocks=(1,)), freed_rows=(0,), new_rows=(scored_row(0, tokens),))
    assert scores(runner.run(again).sampled[0]) == [-11, -12, -13]
    plain = step(entry(0, 0, 4, blocks=(1,)), freed_rows=(0,), new_rows=(new_row(0, tokens),))
    assert runner.run(plain).sampled == (SampledRow(0, (14,)),)


@pytest.mark.parametrize("refusal", [NOT_FINITE, NOTHING_LEFT])
def test_a_token_that_has_no_finite_score_ends_the_request(refusal):
    runner = make_runner(ScoringStep(refused_id=11, refusal=refusal))
    rows = (scored_row(0, (10, 11, 12)), scored_row(1, (20, 21)))
    broken, sound = runner.run(step(entry(0, 0, 3, blocks=(1,)), entry(1, 0, 2, blocks=(2,)), new_rows=rows)).sampled
    assert broken == SampledRow(0, (), error="the model's logits are not finite within the prompt")
    assert scores(sound) == [-21]
