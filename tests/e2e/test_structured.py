"""Structured outputs offline: whatever the model, and this one makes noise, the text is what was asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from octavo import LLM, SamplingParams, StructuredOutputsParams
from octavo.core.admission import RequestRejected
from octavo.engine.outputs import CompletionOutput

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z][a-z]{1,8}$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def llm(tiny_model: Path) -> Iterator[LLM]:
    with LLM(str(tiny_model), max_model_len=320, max_num_seqs=8, num_threads=1) as llm:
        yield llm


def generate(llm: LLM, params: dict[str, Any] | None = None, **structure: Any) -> list[CompletionOutput]:
    settings: dict[str, Any] = {"max_tokens": 200, "seed": 1} | (params or {})
    sampling_params = SamplingParams(**settings, structured_outputs=StructuredOutputsParams(**structure))
    [output] = llm.generate("Who?", sampling_params, use_tqdm=False)
    return output.outputs


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0},
        {"n": 4, "temperature": 1.5},
        {"repetition_penalty": 1.5, "presence_penalty": 2, "frequency_penalty": -2},
        {"top_k": 1, "logprobs": 3},
        {"logit_bias": {5: 100.0}, "bad_words": ("z",)},
    ],
    ids=str,
)
def test_the_text_keeps_to_the_schema(llm, params):
    for choice in generate(llm, params, json=PERSON):
        assert choice.finish_reason == "stop"
        jsonschema.validate(json.loads(choice.text), PERSON)


def test_choices_differ_where_they_may(llm):
    assert len({choice.text for choice in generate(llm, {"n": 4}, json=PERSON)}) > 1


def test_every_kind(llm):
    [choice] = generate(llm, {"max_tokens": 30}, json_object=True)
    assert choice.text.startswith("{")
    assert re.fullmatch(r"\d{3}-[a-f]+", generate(llm, regex=r"\d{3}-[a-f]{2,9}")[0].text)
    assert generate(llm, choice=("yes", "no"))[0].text in ("yes", "no")
    assert re.fullmatch(r"\d+(\+\d+)*", generate(llm, grammar='start: N ("+" N){0,3}\nN: /[0-9]{1,3}/')[0].text)
    assert re.fullmatch(r"x[yz]", generate(llm, grammar='root ::= "x" ("y" | "z")')[0].text)


def test_a_stop_string_ends_it_early(llm):
    [choice] = generate(llm, {"stop": ['"age"']}, json=PERSON)
    assert (choice.finish_reason, choice.stop_reason) == ("stop", '"age"')
    assert re.fullmatch(r'\{\s*"name"\s*:\s*"[A-Z][a-z]{1,8}"\s*,\s*', choice.text)


def test_max_tokens_may_end_it_early(llm):
    [choice] = generate(llm, {"max_tokens": 5}, json=PERSON)
    assert (choice.finish_reason, len(choice.token_ids)) == ("length", 5)


def test_ends_fill_up_what_is_left_of_min_tokens(llm):
    [choice] = generate(llm, {"min_tokens": 20}, choice=("yes", "no"))
    assert (choice.text in ("yes", "no"), choice.finish_reason, len(choice.token_ids)) == (True, "stop", 21)
    [longer] = generate(llm, {"min_tokens": 30}, regex="[a-z]*")
    assert len(longer.text) >= 30  # an end that need not come does not come before its time


def test_an_end_that_is_ignored_is_followed_by_ends(llm):
    [choice] = generate(llm, {"ignore_eos": True, "max_tokens": 12}, choice=("yes", "no"))
    assert (choice.text in ("yes", "no"), choice.finish_reason, len(choice.token_ids)) == (True, "length", 12)


def test_allowed_tokens_and_a_grammar_hold_together(llm):
    letters = (*llm.get_tokenizer().encode("no", add_special_tokens=False), 2)
    [choice] = generate(llm, {"allowed_token_ids": letters}, choice=("yes", "no"))
    assert choice.text == "no"


def test_a_request_that_nothing_can_follow_ends_alone(llm):
    params = [
        SamplingParams(bad_words=("y", "n"), structured_outputs=StructuredOutputsParams(choice=("yes", "no"))),
        SamplingParams(seed=2, max_tokens=8),
    ]
    [stuck], [free] = (output.outputs for output in llm.generate(["Who?"] * 2, params, use_tqdm=False))
    assert stuck.finish_reason == "error" and "structured_outputs" in (stuck.error or "")
    [alone] = llm.generate("Who?", params[1], use_tqdm=False)
    assert free == alone.outputs[0]


def test_what_is_too_much_for_one_step_ends_its_request_alone(llm):
    ambiguous = "start: s\ns: s s s | s s | /[a-z]/ |"
    params = [
        SamplingParams(max_tokens=200, min_tokens=200, structured_outputs=StructuredOutputsParams(grammar=ambiguous)),
        SamplingParams(seed=2, max_tokens=30),
    ]
    [stuck], [free] = (output.outputs for output in llm.generate(["Who?"] * 2, params, use_tqdm=False))
    assert stuck.finish_reason == "error" and "structured_outputs: " in (stuck.error or "")
    [alone] = llm.generate("Who?", params[1], use_tqdm=False)
    assert free == alone.outputs[0]


def test_a_grammar_that_cannot_be_compiled_is_refused_before_anything_runs(llm, monkeypatch):
    monkeypatch.setattr(llm.engine.core, "add_request", lambda request: pytest.fail("it ran"))
    good = SamplingParams(max_tokens=1)
    bad = SamplingParams(structured_outputs=StructuredOutputsParams(regex="["))
    with pytest.raises(RequestRejected, match="unclosed character class"):
        llm.generate(["Who?"] * 2, [good, bad], use_tqdm=False)
