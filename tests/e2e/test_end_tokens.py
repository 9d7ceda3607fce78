"""Which token ends a request, and when it may: in this process, and over the border to an engine of its own (A16)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from octavo import LLM, EngineConfig, SamplingParams
from octavo.core.sampling_params import RequestOutputKind
from octavo.engine.async_engine import AsyncEngine
from octavo.engine.outputs import CompletionOutput, GenerationOutput
from tests.engine.tiny_model import write_tiny_model

PROMPT = "So long"
NUM_TOKENS = 12
FIRST, SECOND, OTHER = 3, 5, 8  # places in the answer


class EngineProcess:
    """Answers as LLM.generate does, from a process of its own."""

    def __init__(self, engine: AsyncEngine, runner: asyncio.Runner) -> None:
        self._engine = engine
        self._runner = runner

    def generate(self, prompt: str, params: SamplingParams) -> list[GenerationOutput]:
        return self._runner.run(self._generate(prompt, replace(params, output_kind=RequestOutputKind.FINAL_ONLY)))

    async def _generate(self, prompt: str, params: SamplingParams) -> list[GenerationOutput]:
        return [output async for output in self._engine.generate(prompt, params)]


@contextmanager
def engine_process(path: str, **options) -> Iterator[EngineProcess]:
    with asyncio.Runner() as runner:
        engine = AsyncEngine(EngineConfig(path, **options))
        try:
            runner.run(engine.start())
            runner.run(engine.wait_until_ready())
            yield EngineProcess(engine, runner)
        finally:
            runner.run(engine.close())


Engine = LLM | EngineProcess


@pytest.fixture(scope="module")
def answer(tiny_model: Path) -> list[int]:
    """What the model says, its end tokens ignored. Its tokens differ, so that each place has a name."""
    with LLM(str(tiny_model), num_threads=1) as llm:
        token_ids = ask(llm, ignore_eos=True).token_ids
    assert len(set(token_ids)) == NUM_TOKENS
    return token_ids


@pytest.fixture(scope="module", params=[LLM, engine_process], ids=["offline", "process"])
def llm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, answer: list[int]):
    """The same model with two of these tokens for its end tokens."""
    folder = write_tiny_model(tmp_path_factory.mktemp("models") / "two-ends")
    end_ids = [answer[FIRST], answer[SECOND]]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": end_ids}))
    with request.param(str(folder), num_threads=1) as llm:
        yield llm


def ask(llm: Engine, **params) -> CompletionOutput:
    settings = {"temperature": 0.0, "max_tokens": NUM_TOKENS} | params
    return llm.generate(PROMPT, SamplingParams(**settings))[0].outputs[0]


def test_the_first_end_token_ends_the_request(llm, answer):
    choice = ask(llm)
    assert choice.token_ids == answer[: FIRST + 1]
    assert (choice.finish_reason, choice.stop_reason) == ("stop", None)


def test_a16_no_end_token_appears_before_min_tokens_are_out(llm, answer):
    for min_tokens in (FIRST + 1, SECOND + 1, NUM_TOKENS):
        token_ids = ask(llm, min_tokens=min_tokens).token_ids
        assert len(token_ids) >= min_tokens
        assert not {answer[FIRST], answer[SECOND]} & set(token_ids[:min_tokens])
        assert token_ids[:FIRST] == answer[:FIRST]
    assert ask(llm, min_tokens=FIRST).token_ids == answer[: FIRST + 1]


def test_a16_end_tokens_can_be_ignored_all_of_them(llm, answer):
    choice = ask(llm, ignore_eos=True)
    assert (choice.token_ids, choice.finish_reason) == (answer, "length")
    choice = ask(llm, ignore_eos=True, min_tokens=NUM_TOKENS)  # nothing that ends it, nothing to ban
    assert choice.token_ids == answer


def test_a16_a_requests_own_stop_token_counts_also_where_end_tokens_do_not(llm, answer):
    choice = ask(llm, ignore_eos=True, stop_token_ids=(answer[OTHER],))
    assert (choice.token_ids, choice.finish_reason) == (answer[: OTHER + 1], "stop")
    assert choice.stop_reason == answer[OTHER]


def test_a16_the_reason_says_which_one_it_was(llm, answer):
    first, second = ask(llm), ask(llm, stop_token_ids=(answer[0],))
    assert (first.stop_reason, second.stop_reason) == (None, answer[0])
    assert ask(llm, stop_token_ids=(answer[FIRST],)).stop_reason == answer[FIRST]


def test_a_second_end_token_is_named(tmp_path, answer):
    folder = write_tiny_model(tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, answer[SECOND]]}))
    with LLM(str(folder), num_threads=1) as llm:
        choice = ask(llm)
    assert choice.token_ids == answer[: SECOND + 1]
    assert (choice.finish_reason, choice.stop_reason) == ("stop", answer[SECOND])
