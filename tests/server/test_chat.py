"""POST /v1/chat/completions: what goes to the engine, and the whole answer."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.core.sampling_params import RequestOutputKind, SamplingParams
from tests.engine.tiny_model import byte_id
from tests.server.scripted_core import MAX_MODEL_LEN, TEXT, says

pytestmark = pytest.mark.anyio

URL = "/v1/chat/completions"
USER = {"role": "user", "content": "Hi"}


def prompt_of(request) -> str:
    return bytes(token_id - byte_id(0) for token_id in request.prompt_token_ids).decode()


async def test_the_whole_answer(client):
    response = await client.post(URL, json={"messages": [USER]})
    body = response.json()
    assert body.pop("id").startswith("chatcmpl-")
    assert isinstance(body.pop("created"), int)
    num_prompt_tokens, num_tokens = len("user: Hi\nassistant: "), len(TEXT.encode()) + 1
    assert body == {
        "object": "chat.completion",
        "model": "tiny",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": TEXT, "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
                "stop_reason": None,
            }
        ],
        "usage": {
            "prompt_tokens": num_prompt_tokens,
            "completion_tokens": num_tokens,
            "total_tokens": num_prompt_tokens + num_tokens,
            "prompt_tokens_details": {"cached_tokens": 3},
        },
    }


async def test_parameters_reach_the_engine(client, core):
    fields: dict[str, Any] = {
        "n": 3,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.1,
        "seed": -4,
        "stop": ["a", "b"],
        "stop_token_ids": [9],
        "include_stop_str_in_output": True,
        "ignore_eos": True,
        "skip_special_tokens": False,
        "min_tokens": 2,
        "max_tokens": 9,
    }
    logprobs = {"logprobs": True, "top_logprobs": 4}
    await client.post(URL, json={"messages": [USER], "priority": -5, "cache_salt": "salt"} | fields | logprobs)
    [request] = core.requests
    assert request.sampling_params == SamplingParams(**fields, logprobs=4, output_kind=RequestOutputKind.FINAL_ONLY)
    assert (request.priority, request.cache_salt, request.seed) == (-5, "salt", 2**64 - 4)


async def test_defaults(client, core):
    optional = "stop max_tokens max_completion_tokens top_logprobs tools tool_choice seed n temperature stream model"
    await client.post(URL, json={"messages": [USER]})
    await client.post(URL, json={"messages": [USER]} | dict.fromkeys(optional.split()))  # null: the same as absent
    for request in core.requests:
        assert request.sampling_params == SamplingParams(max_tokens=None, output_kind=RequestOutputKind.FINAL_ONLY)


async def test_what_asks_for_nothing_is_accepted(client, core):
    neutral = {
        "presence_penalty": 0.0,
        "frequency_penalty": 0,
        "repetition_penalty": 1.0,
        "logit_bias": {},
        "response_format": {"type": "text"},
        "tools": [],
        "tool_choice": "none",
        "add_special_tokens": False,
        "user": "u",
        "store": False,
        "metadata": {"a": "b"},
        "service_tier": "auto",
        "reasoning_effort": "low",
        "parallel_tool_calls": True,
        "prompt_cache_key": "k",
        "never_heard_of": [1],
    }
    assert (await client.post(URL, json={"messages": [USER]} | neutral)).status_code == 200
    assert len(core.requests) == 1


async def test_max_completion_tokens_wins(client, core):
    await client.post(URL, json={"messages": [USER], "max_tokens": 5, "max_completion_tokens": 7})
    await client.post(URL, json={"messages": [USER], "max_tokens": MAX_MODEL_LEN})  # clipped with the prompt
    assert [request.sampling_params.max_tokens for request in core.requests] == [7, MAX_MODEL_LEN]


async def test_messages_become_the_prompt(client, core):
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1}'}}]},
        {"role": "tool", "content": "3", "tool_call_id": "call_1"},
    ]
    await client.post(URL, json={"messages": messages})
    await client.post(URL, json={"messages": messages, "add_generation_prompt": False})
    with_prompt, without = map(prompt_of, core.requests)
    call = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'  # this template knows no tools
    result = "<tool_response>\n3\n</tool_response>"
    assert with_prompt == f"system: Be brief.\nuser: One\ntwo\nassistant: {call}\nuser: {result}\nassistant: "
    assert without + "assistant: " == with_prompt


async def test_logprobs(client, core):
    core.script = says("é", "length")
    body = {"messages": [USER], "logprobs": True, "top_logprobs": 2, "n": 2, "seed": 1}
    choices = (await client.post(URL, json=body)).json()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1]
    for choice in choices:
        assert choice["finish_reason"] == "length"
        assert choice["logprobs"]["refusal"] is None
        entries = choice["logprobs"]["content"]
        assert bytes(byte for entry in entries for byte in entry["bytes"]).decode() == "é"
        for entry, byte in zip(entries, "é".encode(), strict=True):
            question_mark = {"token": "?", "logprob": -9999.0, "bytes": [63]}
            chosen = {"token": "\N{REPLACEMENT CHARACTER}", "logprob": -0.5, "bytes": [byte]}
            assert entry == {**chosen, "top_logprobs": [chosen, question_mark]}


@pytest.mark.parametrize("num_top", [0, 1, 2])
async def test_top_logprobs_has_exactly_as_many_entries_as_asked(client, num_top):
    body = {"messages": [USER], "logprobs": True, "top_logprobs": num_top}
    [choice] = (await client.post(URL, json=body)).json()["choices"]
    assert {len(entry["top_logprobs"]) for entry in choice["logprobs"]["content"]} == {num_top}


async def test_stop_strings(client, core):
    [choice] = (await client.post(URL, json={"messages": [USER], "stop": "lo,"})).json()["choices"]
    assert choice["message"]["content"] == "Hal"
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "lo,")
    assert core.aborted == [core.requests[0].request_id]  # the core must not go on with it


async def test_model_names(client):
    for name, served_as in [(None, "tiny"), ("", "tiny"), ("tiny", "tiny"), ("org/alias", "org/alias")]:
        body = (await client.post(URL, json={"messages": [USER], "model": name})).json()
        assert body["model"] == served_as


async def test_request_ids_are_echoed_and_no_more(client, core):
    for _ in range(2):
        body = {"messages": [USER], "request_id": "mine"}
        response = await client.post(URL, json=body, headers={"x-request-id": "mine"})
        assert response.headers["x-request-id"] == "mine"
    ids = {request.request_id for request in core.requests}
    assert len(ids) == 2 and not any("mine" in request_id for request_id in ids)
