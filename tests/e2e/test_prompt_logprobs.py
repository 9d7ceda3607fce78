"""The log-probabilities of a prompt: the same bits however it was computed, delivered once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo import LLM, SamplingParams
from octavo.engine.outputs import GenerationOutput, Logprob
from octavo.weights.checkpoint import open_checkpoint
from tests.e2e.scenarios import KV_CACHE_DTYPES, PRECISIONS, PREFIX, SCENARIOS
from tests.e2e.test_odd_logits import POISON, poison
from tests.engine.tiny_model import write_tiny_model

pytestmark = pytest.mark.equality

PROMPTS = {"forty": PREFIX[:40], "one": "x", "two": "xy", "long": 2 * PREFIX + "!"}
PARAMS = SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True, logprobs=1, prompt_logprobs=2)

Open = Callable[..., LLM]
Scores = dict[str, list[dict[int, Logprob] | None] | None]


@pytest.fixture(scope="module", params=["float32", "int4"])
def precision(request: pytest.FixtureRequest) -> dict[str, str]:
    return PRECISIONS[request.param] | {"kv_cache_dtype": KV_CACHE_DTYPES[request.param]}


@pytest.fixture
def open_llm(tiny_model: Path, precision: dict[str, str]) -> Iterator[Open]:
    with ExitStack() as opened:
        yield lambda **options: opened.enter_context(tiny_llm(tiny_model, **precision, **options))


@pytest.fixture(scope="module")
def expected(tiny_model: Path, precision: dict[str, str]) -> Scores:
    """What all others are held against: each prompt alone and whole."""
    with tiny_llm(tiny_model, max_num_batched_tokens=4096, max_num_seqs=1, **precision) as llm:
        return {name: generate(llm, prompt).prompt_logprobs for name, prompt in PROMPTS.items()}


def tiny_llm(path: Path, **options: Any) -> LLM:
    return LLM(str(path), **({"max_model_len": 320, "max_num_seqs": 8, "num_threads": 1} | options))


def generate(llm: LLM, prompt: Any, params: SamplingParams = PARAMS) -> GenerationOutput:
    [output] = llm.generate([prompt], params, use_tqdm=False)
    return output


def scores_of(outputs: list[GenerationOutput]) -> Scores:
    return {name: output.prompt_logprobs for name, output in zip(PROMPTS, outputs, strict=True)}


@pytest.mark.parametrize("budget", [1, 7, 16, 39, 40, 4096])
def test_a06_chunks_and_neighbours(expected, open_llm, budget):
    assert [len(scores) for scores in expected.values()] == [40, 1, 2, 2 * len(PREFIX) + 1]
    llm = open_llm(max_num_batched_tokens=budget)
    assert {name: generate(llm, prompt).prompt_logprobs for name, prompt in PROMPTS.items()} == expected
    prompts, params = list(PROMPTS.values()), [PARAMS] * len(PROMPTS)
    neighbours = [scenario.prompt for scenario in SCENARIOS], [scenario.params for scenario in SCENARIOS]
    outputs = llm.generate(prompts + neighbours[0], params + neighbours[1], use_tqdm=False)
    assert scores_of(outputs[: len(PROMPTS)]) == expected
    assert all(output.num_cached_tokens == 0 for output in outputs[: len(PROMPTS)])
    assert all(output.prompt_logprobs is None for output in outputs[len(PROMPTS) :])


def test_the_neighbours_notice_nothing(open_llm):
    plain = [scenario.prompt for scenario in SCENARIOS], [scenario.params for scenario in SCENARIOS]
    alone = open_llm(max_num_batched_tokens=48).generate(*plain, use_tqdm=False)
    scored = list(PROMPTS.values()), [PARAMS] * len(PROMPTS)
    mixed = open_llm(max_num_batched_tokens=48).generate(scored[0] + plain[0], scored[1] + plain[1], use_tqdm=False)
    assert [output.outputs for output in mixed[len(PROMPTS) :]] == [output.outputs for output in alone]


def test_a_prompt_is_scored_as_its_tokens_were_when_they_were_generated(open_llm):
    llm = open_llm()
    first = generate(llm, PREFIX, SamplingParams(max_tokens=40, seed=1, ignore_eos=True, logprobs=2))
    choice = first.outputs[0]
    again = generate(llm, {"prompt_token_ids": first.prompt_token_ids + choice.token_ids})
    assert again.prompt_logprobs is not None
    assert again.prompt_logprobs[len(first.prompt_token_ids) :] == choice.logprobs


def test_what_the_cache_holds_makes_no_difference(expected, open_llm):
    plain = SamplingParams(max_tokens=20)
    for first in (plain, PARAMS):
        llm = open_llm(max_num_batched_tokens=48)
        llm.generate(list(PROMPTS.values()), first, use_tqdm=False)
        assert scores_of(llm.generate(list(PROMPTS.values()), PARAMS, use_tqdm=False)) == expected
        assert generate(llm, PROMPTS["long"], plain).num_cached_tokens >= 128


def test_preemptions_before_and_after_the_first_token(expected, open_llm, tiny_model, precision):
    block_bytes = open_checkpoint(tiny_model).config.block_bytes(precision["kv_cache_dtype"])
    pool = {"max_model_len": None, "kv_cache_memory_bytes": 12 * block_bytes}
    long = SamplingParams(max_tokens=50, temperature=0.0, ignore_eos=True, prompt_logprobs=2)
    for budget in (4, 48, 4096):
        llm = open_llm(max_num_batched_tokens=budget, **pool)
        older = {"prompt_token_ids": [3 + place % 200 for place in range(30)]}
        params = [SamplingParams(max_tokens=120, ignore_eos=True), *[long] * len(PROMPTS)]
        outputs = llm.generate([older, *PROMPTS.values()], params, use_tqdm=False)
        assert scores_of(outputs[1:]) == expected
        assert llm.engine.core.scheduler.totals.num_preemptions > 0


def test_several_choices_share_one_list(expected, open_llm):
    params = SamplingParams(n=3, seed=5, max_tokens=4, prompt_logprobs=2)
    output = generate(open_llm(max_num_batched_tokens=16), PROMPTS["long"], params)
    assert output.prompt_logprobs == expected["long"]
    assert len(output.outputs) == 3


def test_other_numbers_of_alternatives(expected, open_llm):
    llm = open_llm(max_logprobs=-1)
    for count in (0, 1, -1):
        scores = generate(llm, PROMPTS["forty"], SamplingParams(max_tokens=1, prompt_logprobs=count)).prompt_logprobs
        assert scores is not None and scores[0] is None
        for by_id, reference in zip(scores[1:], expected["forty"][1:], strict=True):
            assert by_id is not None
            assert by_id.items() <= reference.items() if count >= 0 else by_id.items() >= reference.items()
            assert len(by_id) in ((1, 2) if count == 1 else (1,) if count == 0 else (259,))
            if count == -1:
                assert sum(np.exp(entry.logprob) for entry in by_id.values()) == pytest.approx(1.0, abs=1e-5)


def test_the_reference_agrees(tiny_model):
    with tiny_llm(tiny_model, dtype="float32") as llm:
        expected = generate(llm, PROMPTS["forty"]).prompt_logprobs
    with tiny_llm(tiny_model, backend="reference") as llm:
        scores = generate(llm, PROMPTS["forty"]).prompt_logprobs
    assert scores is not None and expected is not None
    for by_id, reference in zip(scores[1:], expected[1:], strict=True):
        assert by_id is not None and reference is not None
        assert by_id.keys() == reference.keys()
        for token_id, entry in by_id.items():
            assert entry.logprob == pytest.approx(reference[token_id].logprob, abs=1e-4)


def test_logits_that_are_not_finite_end_that_request_alone(tmp_path):
    with tiny_llm(write_tiny_model(tmp_path / "poisoned", poison)) as llm:
        sound, broken = llm.generate([[5, 6], [5, POISON, 6]], PARAMS, use_tqdm=False)
    assert broken.outputs[0].finish_reason == "error" and broken.prompt_logprobs is None
    assert sound.outputs[0].finish_reason == "length" and len(sound.prompt_logprobs or ()) == 2
