"""Structured outputs as clients get them, from a real server; and what hostile ones do to others: nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.e2e.server_process import ServerProcess, until

COLOURS = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]}
FIXED = {**COLOURS, "additionalProperties": False}
BYSTANDER = {"prompt": "Tell me a story.", "max_tokens": 250, "ignore_eos": True, "seed": 5, "logprobs": 1}
HOSTILE: list[dict[str, Any]] = [
    {"guided_regex": "["},
    {"guided_json": {"type": "integer", "multipleOf": 999_983}},
    {"guided_json": {"type": "integer", "multipleOf": 999_979}},
    {"guided_json": {"allOf": [{"type": "string", "pattern": f"(a|b|c)*{'x' * i}"} for i in range(1, 30)]}},
    {"guided_json": {"enum": ["value " * 200_000]}},
    {"guided_json": {"$ref": "#"}},
    {"guided_json": {"type": "integer", "minimum": 1, "maximum": 0}},
    {"guided_grammar": "start: " + "(" * 100_000},
    {"guided_grammar": "root ::= " + "(" * 100_000},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "banana"}}}},
]


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tiny_model, "--max-model-len", "320", "--max-num-seqs", "4") as server:
        yield server.wait_until_ready()


def complete(server: ServerProcess, **fields: Any) -> httpx.Response:
    return server.client.post("/v1/completions", json={"prompt": "Hi", "max_tokens": 100, "seed": 1} | fields)


def test_the_official_client_gets_what_its_schema_says(server):
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    answer = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "Which colour?"}],
        response_format={"type": "json_schema", "json_schema": {"name": "colours", "schema": FIXED, "strict": True}},
        seed=3,
    )
    assert answer.choices[0].finish_reason == "stop"
    assert json.loads(answer.choices[0].message.content or "")["colour"] in ("red", "blue")
    response = client.responses.create(
        model="tiny",
        input="Which colour?",
        text={"format": {"type": "json_schema", "name": "colours", "schema": FIXED, "strict": True}},
    )
    assert json.loads(response.output_text)["colour"] in ("red", "blue")


def test_streamed_or_whole_the_text_is_the_same(server):
    whole = complete(server, guided_json=FIXED).json()["choices"][0]
    *events, _, _ = complete(server, guided_json=FIXED, stream=True).text.split("\n\n")
    choices = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events]
    assert "".join(choice["text"] for choice in choices) == whole["text"]
    assert (choices[-1]["finish_reason"], json.loads(whole["text"]).keys()) == ("stop", {"colour"})


def test_a38_hostile_grammars_are_refused_and_bystanders_notice_nothing(server):
    alone = complete(server, **BYSTANDER).json()["choices"]
    with ThreadPoolExecutor(12) as clients:
        bystanders = [clients.submit(complete, server, **BYSTANDER) for _ in range(2)]
        hostile = [clients.submit(complete, server, **fields) for fields in HOSTILE]
        refused = [answer.result() for answer in hostile]
        assert [answer.result().json()["choices"] for answer in bystanders] == [alone] * 2
    for answer in refused:
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert error["code"] in ("invalid_grammar", "invalid_value") and "\n" not in error["message"]
    again = complete(server, guided_choice=["still", "there"]).json()["choices"][0]
    assert again["text"] in ("still", "there")


def test_a_client_that_leaves_a_long_compilation_leaves_nothing(server):
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{server.url}/v1/completions",
            json={"prompt": "Hi", "guided_json": {"type": "integer", "multipleOf": 999_961}},
            timeout=0.05,
        )
    assert complete(server, guided_choice=["still", "there"]).status_code == 200
    until(server.is_idle)
