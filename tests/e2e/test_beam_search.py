"""Beam search: what it finds, held against a search that asks for one sequence after the other."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from octavo import LLM, BeamSearchParams, SamplingParams
from octavo.core.admission import RequestRejected
from octavo.core.sampling_params import ParameterError
from tests.e2e.test_odd_logits import poison
from tests.engine.tiny_model import EOS_ID, write_tiny_model

PROMPTS = ["So long", "x", "The same request gets the same bytes."]
WIDTH, MAX_TOKENS = 3, 6


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    """The tiny model, with end tokens that it likes."""
    folder = write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")
    with LLM(str(folder), num_threads=1, max_model_len=64) as llm:
        liked = likely(llm, [68, 69, 70], 6)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [EOS_ID, *list(liked)[2:]]}))
    with LLM(str(folder), num_threads=1, max_model_len=64) as llm:
        yield llm


def likely(llm: LLM, tokens: list[int], num_top: int) -> dict[int, float]:
    params = SamplingParams(max_tokens=1, temperature=0.0, logprobs=num_top)
    [choice] = llm.generate([tokens], params, use_tqdm=False)[0].outputs
    assert choice.logprobs is not None
    return {token_id: entry.logprob for token_id, entry in choice.logprobs[0].items()}


def search(llm: LLM, prompt: list[int], *, ignores_end: bool = False, penalty: float = 1.0) -> list[tuple]:
    """The sequences and the sums of their log-probabilities."""
    end_ids = set() if ignores_end else set(llm.engine.eos_token_ids)

    def score(found: tuple[list[int], float]) -> float:
        tokens, total = found
        return total / (len(tokens) - (tokens[-1] in llm.engine.eos_token_ids)) ** penalty

    alive, ended = [(prompt, 0.0)], []
    for _ in range(MAX_TOKENS):
        candidates = [
            ([*tokens, token_id], total + logprob)
            for tokens, total in alive
            for token_id, logprob in likely(llm, tokens, 2 * WIDTH).items()
        ]
        ended += [found for found in candidates if found[0][-1] in end_ids]
        alive = sorted((found for found in candidates if found[0][-1] not in end_ids), key=score)[::-1][:WIDTH]
    return sorted(alive + ended, key=score)[::-1][:WIDTH]


@pytest.mark.parametrize("ignores_end", [False, True])
@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.5])
def test_what_it_finds(llm, ignores_end, penalty):
    params = BeamSearchParams(WIDTH, MAX_TOKENS, ignore_eos=ignores_end, length_penalty=penalty)
    outputs = llm.beam_search(PROMPTS, params)
    reasons = set()
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        prompt_ids = llm.get_tokenizer().encode(prompt, add_special_tokens=True)
        expected = search(llm, prompt_ids, ignores_end=ignores_end, penalty=penalty)
        assert [(found.tokens, found.cum_logprob) for found in output.sequences] == expected
        for found in output.sequences:
            generated = found.tokens[len(prompt_ids) :]
            chosen = [by_id[token_id].logprob for token_id, by_id in zip(generated, found.logprobs, strict=True)]
            assert sum(chosen) == pytest.approx(found.cum_logprob)
            assert found.text == llm.get_tokenizer().decode(found.tokens, skip_special_tokens=False)
            reasons.add(found.finish_reason)
            is_end = not ignores_end and generated[-1] in llm.engine.eos_token_ids
            assert (found.finish_reason == "stop") == is_end and (is_end or len(generated) == MAX_TOKENS)
    assert reasons == ({"length"} if ignores_end else reasons | {"stop"})


def test_a_prompt_alone_and_among_others(llm):
    params = BeamSearchParams(WIDTH, MAX_TOKENS)
    together = llm.beam_search([*PROMPTS, [68, 69], {"prompt_token_ids": [70]}], params)
    assert [llm.beam_search(prompt, params) for prompt in PROMPTS] == [[output] for output in together[:3]]
    assert llm.beam_search([], params) == []


def test_one_beam_is_the_greedy_answer(llm):
    [output] = llm.beam_search("So long", BeamSearchParams(1, MAX_TOKENS, ignore_eos=True, length_penalty=0.0))
    greedy = SamplingParams(max_tokens=MAX_TOKENS, temperature=0.0, ignore_eos=True, logprobs=0)
    [answer] = llm.generate("So long", greedy)
    assert output.sequences[0].tokens == answer.prompt_token_ids + answer.outputs[0].token_ids
    assert output.sequences[0].cum_logprob == pytest.approx(answer.outputs[0].cumulative_logprob)


def test_it_ends_where_the_model_ends(llm):
    [output] = llm.beam_search([[68] * 60], BeamSearchParams(WIDTH, 1000, ignore_eos=True))
    assert [len(found.tokens) for found in output.sequences] == [64] * WIDTH


def test_what_it_refuses(llm, tmp_path):
    for fields in ({"beam_width": 0}, {"max_tokens": 0}, {"temperature": -1}, {"length_penalty": float("nan")}):
        with pytest.raises(ParameterError) as refusal:
            BeamSearchParams(**{"beam_width": 2, "max_tokens": 2} | fields)
        assert [refusal.value.param] == list(fields)
    with pytest.raises(ParameterError, match="logprobs is 22; at most 20 are allowed"):
        llm.beam_search("x", BeamSearchParams(11, 2))
    with pytest.raises(RequestRejected):
        llm.beam_search(["x", [68] * 64], BeamSearchParams(2, 2))
    with (
        LLM(str(write_tiny_model(tmp_path / "poisoned", poison)), num_threads=1) as broken,
        pytest.raises(RuntimeError, match="the search broke off: the model's logits are not finite"),
    ):
        broken.beam_search("~", BeamSearchParams(2, 2))
