"""The promise, with drafts: whoever guesses, and however many guesses are verified, an answer stays the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo import LLM, SamplingParams
from octavo.spec_decode.draft_budget import DraftBudget
from octavo.weights.checkpoint import open_checkpoint
from tests.e2e.scenarios import (
    PREFIX,
    SCENARIOS,
    Answers,
    Scenario,
    as_choice,
    serve_alone,
    serve_together,
    with_choices,
)
from tests.e2e.test_equality import MAX_MODEL_LEN, one_grammar_checker, tiny_llm
from tests.engine.tiny_model import write_tiny_model

__all__ = ["one_grammar_checker"]  # a fixture of this module, too
pytestmark = pytest.mark.equality

NGRAM = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 1}
REPEATING = tuple(
    Scenario(
        f"repeating at {temperature}",
        "ab" * 30 + PREFIX,
        SamplingParams(max_tokens=60, ignore_eos=True, logprobs=1, temperature=temperature, seed=11, top_k=3),
    )
    for temperature in (0.0, 0.3)
)
ALL = SCENARIOS + REPEATING

Open = Callable[..., LLM]


@pytest.fixture(scope="module", params=["ngram", "same model", "like model", "other model"])
def guesser(request: pytest.FixtureRequest) -> str:
    """Who guesses: the text itself; the model itself, which is always right; one like it; one that knows nothing."""
    return str(request.param)


@pytest.fixture(scope="module")
def speculative_config(guesser: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if guesser == "ngram":
        return NGRAM
    noise = {"same model": 0.0, "like model": 0.05, "other model": 10.0}[guesser]
    random = np.random.default_rng(3)

    def disturb(weights: dict[str, np.ndarray]) -> None:
        for array in weights.values():
            array += noise * array.std() * random.standard_normal(array.shape, np.float32)

    folder = write_tiny_model(tmp_path_factory.mktemp("draft") / "model", disturb)
    return {"model": str(folder), "num_speculative_tokens": 4}


@pytest.fixture(scope="module")
def answers(tiny_model: Path) -> Answers:
    """Each request alone, its prompt whole, nothing cached and nothing guessed."""
    with tiny_llm(tiny_model, max_num_seqs=1, max_num_batched_tokens=4096, enable_prefix_caching=False) as llm:
        return serve_alone(llm, ALL)


@pytest.fixture
def open_llm(tiny_model: Path, speculative_config: dict[str, Any]) -> Iterator[Open]:
    """Opens engines that guess and are closed when the test ends."""
    with ExitStack() as opened:
        options = {"speculative_config": speculative_config}
        yield lambda **more: opened.enter_context(tiny_llm(tiny_model, **options | more))


@pytest.fixture(autouse=True)
def any_number_of_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a budget might come to by its timings, drawn from a seed."""
    draw = random.Random(5)

    def allot(self: DraftBudget, outlooks: Any) -> dict[int, int]:
        if draw.random() < 0.1:
            return {}
        return {outlook.row: draw.randint(0, outlook.max_drafts) for outlook in outlooks if outlook.max_drafts}

    monkeypatch.setattr(DraftBudget, "allot", allot)


def check_drafts(llm: LLM, guesser: str) -> None:
    """Some were right; all of them, if the model guessed itself: its KV follows the target's wherever that goes."""
    totals = llm.engine.core.scheduler.totals
    num_accepted = sum(totals.num_accepted_by_position)
    assert num_accepted > 0
    assert (num_accepted == totals.num_draft_tokens) == (guesser == "same model")


@pytest.mark.parametrize("budget", [3, 4096])
def test_neighbours_chunks_and_the_prefix_cache(answers, open_llm, guesser, budget):
    llm = open_llm(max_num_batched_tokens=budget)
    assert serve_together(llm, ALL) == answers
    assert serve_together(llm, ALL[::-1]) == answers
    assert serve_alone(llm, ALL) == answers
    check_drafts(llm, guesser)


def test_64_requests_at_once(answers, open_llm, guesser):
    llm = open_llm(max_num_seqs=64)
    many = [scenario for scenario in ALL for _ in range(4)]
    outputs = llm.generate([one.prompt for one in many], [one.params for one in many], use_tqdm=False)
    assert [output.outputs for output in outputs] == [answers[one.name] for one in many]
    check_drafts(llm, guesser)


def test_preemption_and_a_pool_far_too_small(answers, open_llm, tiny_model, guesser):
    block_bytes = open_checkpoint(tiny_model).config.block_bytes("float32") * (1 if guesser == "ngram" else 2)
    llm = open_llm(max_num_batched_tokens=16, kv_cache_memory_bytes=-(-MAX_MODEL_LEN // 16) * block_bytes)
    assert serve_together(llm, ALL) == answers
    assert llm.engine.core.scheduler.totals.num_preemptions > 0
    check_drafts(llm, guesser)


def test_choices_equal_requests_of_their_own(answers, open_llm, guesser):
    llm = open_llm()
    seeded = [scenario for scenario in ALL if scenario.params.seed is not None and not scenario.params.is_greedy]
    together = serve_together(llm, [with_choices(scenario, 2) for scenario in seeded])
    alone = serve_alone(llm, [as_choice(scenario, 1) for scenario in seeded])
    for scenario in seeded:
        first, second = together[f"{scenario.name} x 2"]
        assert first == answers[scenario.name][0]
        assert replace(second, index=0) == alone[f"{scenario.name} + 1"][0]
    check_drafts(llm, guesser)
