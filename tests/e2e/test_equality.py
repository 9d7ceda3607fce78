"""The promise, offline: however a request is served, its answer is the same to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from octavo import LLM, SamplingParams
from octavo.structured import compiler
from octavo.structured.checker import GrammarChecker
from octavo.weights.checkpoint import open_checkpoint
from tests.e2e.scenarios import (
    KV_CACHE_DTYPES,
    MAX_TOKENS,
    MIN_TOKENS,
    PRECISIONS,
    PREFIX,
    SCENARIOS,
    Answers,
    as_choice,
    serve_alone,
    serve_together,
    with_choices,
)

pytestmark = pytest.mark.equality

MAX_MODEL_LEN = 320
BUDGETS = (1, 7, 16, 4096)  # tokens a step: no chunk is like another, or all prompts are whole

Open = Callable[..., LLM]


@pytest.fixture(scope="module", params=PRECISIONS)
def precision(request: pytest.FixtureRequest) -> dict[str, str]:
    """Each kind of weights in turn, and of a KV cache."""
    return PRECISIONS[request.param] | {"kv_cache_dtype": KV_CACHE_DTYPES[request.param]}


@pytest.fixture(scope="module", autouse=True)
def one_grammar_checker() -> Iterator[None]:
    """For all engines here: starting one takes longer than most of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "GrammarChecker", cache(GrammarChecker))
        patch.setattr(GrammarChecker, "close", lambda checker: None)
        yield


@pytest.fixture
def block_bytes(tiny_model: Path, precision: dict[str, str]) -> int:
    """Of a block of that KV cache."""
    return open_checkpoint(tiny_model).config.block_bytes(precision["kv_cache_dtype"])


@pytest.fixture
def open_llm(tiny_model: Path, precision: dict[str, str]) -> Iterator[Open]:
    """Opens engines, with these options, that are closed when the test ends."""
    with ExitStack() as opened:
        yield lambda **options: opened.enter_context(tiny_llm(tiny_model, **precision, **options))


@pytest.fixture(scope="module")
def answers(tiny_model: Path, precision: dict[str, str]) -> Answers:
    """What all other answers are held against: each request alone, its prompt whole, nothing cached."""
    options = {"max_num_seqs": 1, "max_num_batched_tokens": 4096, "enable_prefix_caching": False}
    with tiny_llm(tiny_model, **precision, **options) as llm:
        return serve_alone(llm)


def tiny_llm(path: Path, **options: Any) -> LLM:
    return LLM(str(path), **({"max_model_len": MAX_MODEL_LEN, "max_num_seqs": 8, "num_threads": 1} | options))


def num_preemptions(llm: LLM) -> int:
    return llm.engine.core.scheduler.totals.num_preemptions


def test_the_scenarios_differ_and_end_in_every_way(answers):
    choices = {name: choice for name, (choice,) in answers.items()}
    assert len({tuple(choice.token_ids) for choice in choices.values()}) == len(choices)
    assert all(MIN_TOKENS < len(choice.token_ids) <= MAX_TOKENS for choice in choices.values())
    ends = [(choices[name].finish_reason, choices[name].stop_reason) for name in ("greedy", "stop-ids", "stop-string")]
    assert [(reason, type(stop)) for reason, stop in ends] == [("length", type(None)), ("stop", int), ("stop", str)]
    assert all(choice.cumulative_logprob for choice in choices.values())


def test_neighbours_and_rows(answers, open_llm):
    llm = open_llm()
    assert serve_together(llm) == answers
    assert serve_together(llm, SCENARIOS[::-1]) == answers
    assert serve_together(llm, SCENARIOS[3:] + SCENARIOS[:3]) == answers
    assert serve_alone(llm) == answers


def test_a_request_beside_itself(answers, open_llm):
    llm = open_llm()
    for scenario in SCENARIOS[:2]:
        outputs = llm.generate([scenario.prompt] * 5, scenario.params, use_tqdm=False)
        assert [output.outputs for output in outputs] == [answers[scenario.name]] * 5


@pytest.mark.parametrize("budget", BUDGETS)
def test_chunks(answers, open_llm, budget):
    assert serve_together(open_llm(max_num_batched_tokens=budget)) == answers


@pytest.mark.parametrize("budget", BUDGETS[1:])
def test_the_prefix_cache(answers, open_llm, budget):
    llm = open_llm(max_num_batched_tokens=budget)
    for _ in range(2):
        assert serve_together(llm) == answers
    outputs = llm.generate([scenario.prompt for scenario in SCENARIOS], use_tqdm=False)
    assert all(output.num_cached_tokens == len(output.prompt_token_ids) - 1 for output in outputs)
    without = open_llm(max_num_batched_tokens=budget, enable_prefix_caching=False)
    for _ in range(2):
        assert serve_together(without) == answers


def test_part_of_a_block_from_the_cache(answers, open_llm):
    llm = open_llm()
    llm.generate([PREFIX + "W", PREFIX + "Whi"], use_tqdm=False)
    outputs = llm.generate([scenario.prompt for scenario in SCENARIOS], use_tqdm=False)
    assert any(output.num_cached_tokens % 16 > 0 for output in outputs)
    assert serve_alone(llm) == answers


@pytest.mark.parametrize("has_cache", [True, False])
def test_preemption_of_each_request(answers, open_llm, block_bytes, has_cache):
    llm = open_llm(max_model_len=None, enable_prefix_caching=has_cache, kv_cache_memory_bytes=24 * block_bytes)
    for scenario in SCENARIOS:
        # An older request leaves room for the prompt and one block more. It takes that block at its 5th token and
        # asks for the next at its 21st, if not the scenario asks first: either way the younger one must give way.
        num_blocks = 24 - 1 - -(-len(llm.get_tokenizer().encode(scenario.prompt, add_special_tokens=True)) // 16)
        older = {"prompt_token_ids": [3 + place % 200 for place in range(16 * num_blocks - 4)]}
        settings = SamplingParams(max_tokens=26, ignore_eos=True)
        before = num_preemptions(llm)
        outputs = llm.generate([older, scenario.prompt], [settings, scenario.params], use_tqdm=False)
        assert outputs[1].outputs == answers[scenario.name], scenario.name
        assert num_preemptions(llm) > before, scenario.name


def test_a_pool_far_too_small_for_all(answers, open_llm, block_bytes):
    llm = open_llm(max_num_batched_tokens=16, kv_cache_memory_bytes=-(-MAX_MODEL_LEN // 16) * block_bytes)
    assert serve_together(llm) == answers
    assert num_preemptions(llm) > 0


def test_choices_equal_requests_of_their_own(answers, open_llm):
    seeded = [scenario for scenario in SCENARIOS if scenario.params.seed is not None]
    alone = serve_alone(open_llm(), [as_choice(scenario, index) for scenario in seeded for index in range(3)])
    expected = {
        f"{scenario.name} x 3": [replace(alone[f"{scenario.name} + {index}"][0], index=index) for index in range(3)]
        for scenario in seeded
    }
    together = [with_choices(scenario, 3) for scenario in seeded]
    for options in ({}, {"max_num_batched_tokens": 7}, {"enable_prefix_caching": False}):
        assert serve_together(open_llm(**options), together) == expected


def test_the_number_of_threads(answers, open_llm):
    assert serve_together(open_llm(num_threads=2)) == answers
