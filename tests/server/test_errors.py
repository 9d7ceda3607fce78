"""Every way to ask for what cannot be had, and the one shape of all answers to that."""

from __future__ import annotations

import json
from typing import Any

import pytest

from octavo.core.messages import CONSTRAINTS_FAILED, RequestOutput
from tests.server.events import read_events
from tests.server.scripted_core import fails

pytestmark = pytest.mark.anyio

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
USER = {"role": "user", "content": "Hi"}
JSON = {"content-type": "application/json"}


def error_of(response):
    """The error in a response, whose envelope must be complete."""
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    body = json.loads(response.content, parse_constant=pytest.fail)  # NaN is not JSON
    assert body.keys() == {"error"}
    error = body["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str) and 0 < len(error["message"]) < 1100
    assert isinstance(error["code"], str)
    assert error["param"] is None or isinstance(error["param"], str)
    return error


CHAT_ERRORS: list[tuple[str, Any, str | None, str]] = [  # field, value, param, code
    ("messages", None, "messages", "invalid_value"),
    ("messages", "Hi", "messages", "invalid_value"),
    ("messages", [], "messages", "invalid_value"),
    ("messages", ["Hi"], "messages[0]", "invalid_value"),
    ("messages", [{"content": "Hi"}], "messages[0].role", "invalid_value"),
    ("messages", [USER, {"role": "wizard", "content": "Hi"}], "messages[1].role", "invalid_value"),
    ("messages", [{"role": "user", "content": None}], "messages[0].content", "invalid_value"),
    ("messages", [{"role": "user", "content": 5}], "messages[0].content", "invalid_value"),
    (
        "messages",
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}],
        "messages[0].content[0].type",
        "invalid_value",
    ),
    (
        "messages",
        [{"role": "user", "content": [{"type": "text", "text": 5}]}],
        "messages[0].content[0].text",
        "invalid_value",
    ),
    (
        "messages",
        [USER, {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{"}}]}],
        "messages[1].tool_calls[0].function.arguments",
        "invalid_value",
    ),
    ("messages", [{"role": "user", "content": "x" * 600}], None, "context_length_exceeded"),
    ("model", "gpt-99", "model", "model_not_found"),
    ("max_tokens", 0, "max_tokens", "invalid_value"),
    ("max_tokens", -5, "max_tokens", "invalid_value"),
    ("max_tokens", "5", "max_tokens", "invalid_value"),
    ("max_tokens", True, "max_tokens", "invalid_value"),
    ("max_tokens", 513, "max_tokens", "context_length_exceeded"),
    ("max_completion_tokens", 0, "max_tokens", "invalid_value"),
    ("temperature", -0.1, "temperature", "invalid_value"),
    ("temperature", 2.1, "temperature", "invalid_value"),
    ("temperature", "hot", "temperature", "invalid_value"),
    ("temperature", "nan", "temperature", "invalid_value"),
    ("temperature", True, "temperature", "invalid_value"),
    ("top_p", 0, "top_p", "invalid_value"),
    ("top_p", 1.5, "top_p", "invalid_value"),
    ("top_k", -2, "top_k", "invalid_value"),
    ("min_p", 1.1, "min_p", "invalid_value"),
    ("n", 0, "n", "invalid_value"),
    ("n", 129, "n", "invalid_value"),
    ("seed", 2**70, "seed", "invalid_value"),
    ("stop", ["x"] * 100, "stop", "invalid_value"),
    ("stop", [""], "stop", "invalid_value"),
    ("stop", 5, "stop", "invalid_value"),
    ("stop_token_ids", [-1], "stop_token_ids", "invalid_value"),
    ("stop_token_ids", [10**6], "stop_token_ids", "invalid_value"),
    ("min_tokens", -1, "min_tokens", "invalid_value"),
    ("top_logprobs", 2, "top_logprobs", "invalid_value"),  # without logprobs
    ("priority", 2**70, "priority", "invalid_value"),
    ("cache_salt", "x" * 200, "cache_salt", "invalid_value"),
    ("stream", "yes", "stream", "invalid_value"),
    ("stream_options", {"include_usage": True}, "stream_options", "invalid_value"),  # without stream
    ("chat_template_kwargs", {"messages": []}, "chat_template_kwargs", "invalid_value"),
    ("presence_penalty", 5, "presence_penalty", "invalid_value"),
    ("frequency_penalty", -2.1, "frequency_penalty", "invalid_value"),
    ("repetition_penalty", 0, "repetition_penalty", "invalid_value"),
    ("logit_bias", {"5": 1000}, "logit_bias", "invalid_value"),
    ("logit_bias", {"five": 1}, "logit_bias", "invalid_value"),
    ("logit_bias", {"259": 1}, "logit_bias", "invalid_value"),  # the first id that the tokenizer does not have
    ("bad_words", [""], "bad_words", "invalid_value"),
    ("bad_words", "x", "bad_words", "invalid_value"),
    ("allowed_token_ids", [], "allowed_token_ids", "invalid_value"),
    ("allowed_token_ids", [259], "allowed_token_ids", "invalid_value"),
    ("response_format", {"type": "yaml"}, "response_format.type", "invalid_value"),
    ("response_format", {"type": "json_schema", "json_schema": {}}, "response_format", "invalid_value"),
    ("structured_outputs", {}, "structured_outputs", "invalid_value"),
    ("structured_outputs", {"regex": "a", "json": {}}, "structured_outputs", "invalid_value"),
    ("structured_outputs", {"structural_tag": {}}, "structured_outputs.structural_tag", "invalid_value"),
    ("guided_json", "[", "guided_json", "invalid_value"),
    ("guided_regex", "", "guided_regex", "invalid_value"),
    ("guided_choice", [], "guided_choice", "invalid_value"),
    ("guided_choice", "ab", "guided_choice", "invalid_value"),
    ("guided_grammar", 3, "guided_grammar", "invalid_value"),
    ("tools", [{"type": "web_search"}], "tools[0].type", "invalid_value"),
    ("tools", [{"type": "function", "function": {"name": "a b"}}], "tools[0].function.name", "invalid_value"),
    ("tools", [{"type": "function", "function": {}}], "tools[0].function.name", "invalid_value"),
    ("tools", [{"type": "function"}], "tools[0].function", "invalid_value"),
    ("tools", {}, "tools", "invalid_value"),
    ("tool_choice", "any", "tool_choice", "invalid_value"),
    ("tool_choice", "required", "tool_choice", "invalid_value"),  # without tools
    ("tool_choice", {"type": "function", "function": {"name": "f"}}, "tool_choice", "invalid_value"),
    ("tool_choice", {"type": "function"}, "tool_choice", "invalid_value"),
    ("tool_choice", {"type": "allowed_tools", "mode": "auto", "tools": [{}]}, "tool_choice", "invalid_value"),
    ("parallel_tool_calls", "no", "parallel_tool_calls", "invalid_value"),
    ("chat_template", "{{ 1 }}", "chat_template", "unsupported_parameter"),
    ("chat_template_kwargs", {"chat_template": "{{ 1 }}"}, "chat_template_kwargs", "invalid_value"),
    ("chat_template_kwargs", {"self": 1}, "chat_template_kwargs", "invalid_value"),
    ("prompt_logprobs", 21, "prompt_logprobs", "invalid_value"),
    ("prompt_logprobs", "1", "prompt_logprobs", "invalid_value"),
    ("truncate_prompt_tokens", 0, "truncate_prompt_tokens", "invalid_value"),
    ("truncate_prompt_tokens", -2, "truncate_prompt_tokens", "invalid_value"),
    ("return_token_ids", 1, "return_token_ids", "invalid_value"),
    ("use_beam_search", True, "use_beam_search", "unsupported_parameter"),
]


@pytest.mark.parametrize(("field", "value", "param", "code"), CHAT_ERRORS)
@pytest.mark.parametrize("stream", [False, True])
async def test_chat_refuses(client, core, field, value, param, code, stream):
    if field in ("stream", "stream_options") and stream:
        return
    body = {"messages": [USER], "stream": stream} | {field: value}
    response = await client.post(CHAT, json=body)
    error = error_of(response)
    assert response.status_code == (404 if code == "model_not_found" else 400), response.text
    assert (error["param"], error["code"]) == (param, code)
    assert error["type"] == ("not_found_error" if code == "model_not_found" else "invalid_request_error")
    assert not core.sent[1:]  # nothing but Start has reached the engine
    assert (await client.post(CHAT, json={"messages": [USER]})).status_code == 200


COMPLETION_ERRORS: list[tuple[str, Any, str | None, str]] = [
    ("prompt", None, "prompt", "invalid_value"),
    ("prompt", 5, "prompt", "invalid_value"),
    ("prompt", "", None, "invalid_value"),
    ("prompt", [], "prompt", "invalid_value"),
    ("prompt", [""], None, "invalid_value"),
    ("prompt", [[]], None, "invalid_value"),
    ("prompt", ["Hi", ""], None, "invalid_value"),
    ("prompt", ["Hi", 5], "prompt", "invalid_value"),
    ("prompt", [5, "Hi"], "prompt", "invalid_value"),
    ("prompt", [[5], "Hi"], "prompt", "invalid_value"),
    ("prompt", [-1], "prompt", "invalid_value"),
    ("prompt", [259], "prompt", "invalid_value"),  # the first id that the tokenizer does not have
    ("prompt", [2**31], "prompt", "invalid_value"),
    ("prompt", [2**63], "prompt", "invalid_value"),
    ("prompt", [1.5], "prompt", "invalid_value"),
    ("prompt", [True], "prompt", "invalid_value"),
    ("prompt", [[5], [5, "1"]], "prompt", "invalid_value"),
    ("prompt", [[[5]]], "prompt", "invalid_value"),
    ("prompt", [[5]] * 257, "prompt", "invalid_value"),
    ("prompt", "x" * 512, None, "context_length_exceeded"),
    ("max_tokens", 0, "max_tokens", "invalid_value"),
    ("logprobs", -2, "logprobs", "invalid_value"),
    ("logprobs", -1, "logprobs", "invalid_value"),
    ("logprobs", 21, "logprobs", "invalid_value"),
    ("logprobs", 10**6, "logprobs", "invalid_value"),
    ("logprobs", 2**31, "logprobs", "invalid_value"),
    ("suffix", "end", "suffix", "unsupported_parameter"),
    ("best_of", 3, "best_of", "unsupported_parameter"),
]


@pytest.mark.parametrize(("field", "value", "param", "code"), COMPLETION_ERRORS)
async def test_completions_refuses(client, core, field, value, param, code):
    response = await client.post(COMPLETIONS, json={"prompt": "Hi"} | {field: value})
    error = error_of(response)
    assert response.status_code == 400, response.text
    assert (error["param"], error["code"]) == (param, code)
    assert not core.sent[1:]
    assert (await client.post(COMPLETIONS, json={"prompt": [258]})).status_code == 200


async def test_combinations_refused(client):
    for fields, param in [
        ({"n": 2, "temperature": 0}, "n"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    ]:
        response = await client.post(CHAT, json={"messages": [USER]} | fields)
        assert response.status_code == 400
        assert error_of(response)["param"] == param
    response = await client.post(COMPLETIONS, json={"prompt": "Hi", "prompt_logprobs": 0, "stream": True})
    assert error_of(response)["param"] == "prompt_logprobs"


BAD_BODIES = [
    b"",
    b"{",
    b"[]",
    b'"Hi"',
    b"null",
    b'{"prompt": "\xff"}',
    b'{"prompt": "\\ud800"}',
    b"\xef\xbb\xbf{}",
    b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    *(b'{"prompt": "Hi", "temperature": ' + value + b"}" for value in (b"NaN", b"Infinity", b"-Infinity", b"1e999")),
]


@pytest.mark.parametrize("body", BAD_BODIES, ids=lambda body: repr(body[:40]))
async def test_bad_json(client, core, body):
    response = await client.post(COMPLETIONS, content=body, headers=JSON)
    assert response.status_code == 400
    assert error_of(response)["code"] == "invalid_json"
    assert not core.sent[1:]


async def test_content_type(client):
    body = json.dumps({"prompt": "Hi"})
    for content_type in ("application/json", "Application/JSON; charset=utf-8"):
        assert (await client.post(COMPLETIONS, content=body, headers={"content-type": content_type})).status_code == 200
    response = await client.post(COMPLETIONS, content=body, headers={"content-type": "text/plain"})
    assert (response.status_code, error_of(response)["code"]) == (400, "invalid_content_type")


async def test_too_large_a_body_is_refused_by_its_size(client, core):
    async def chunks():
        while True:  # for ever: whoever reads on never answers
            yield b" " * (1 << 20)

    for content in (b" " * (17 << 20), chunks()):
        response = await client.post(COMPLETIONS, content=content, headers=JSON)
        assert (response.status_code, error_of(response)["code"]) == (413, "request_too_large")


async def test_a_huge_wrong_value_makes_a_small_error(client):
    for body in ({"prompt": "Hi", "model": "m" * 10**6}, {"prompt": "Hi", "prompt_embeds": ["t" * 10**6]}):
        response = await client.post(COMPLETIONS, json=body)
        error_of(response)
        assert len(response.content) < 3000


async def test_routes_that_are_not_there(client):
    response = await client.get("/v1/nothing")
    assert (response.status_code, error_of(response)["code"]) == (404, "not_found")
    response = await client.get(CHAT)
    assert (response.status_code, error_of(response)["code"]) == (405, "method_not_allowed")
    assert response.headers["allow"] == "POST"


async def test_a_request_that_fails_alone(client, core):
    core.script = fails
    response = await client.post(CHAT, json={"messages": [USER]})
    assert response.status_code == 500
    assert error_of(response) == {
        "message": "the generation failed: the logits are not finite",
        "type": "server_error",
        "param": None,
        "code": "generation_failed",
    }
    response = await client.post(CHAT, json={"messages": [USER], "stream": True})
    *_, last = read_events(response)
    assert last["error"]["code"] == "generation_failed"


async def test_a_request_that_rules_out_every_token(client, core):
    def cornered(request):
        return [
            RequestOutput(request.request_id, 0, (), finish_reason="error", error=f"{CONSTRAINTS_FAILED}: relax one")
        ]

    core.script = cornered
    response = await client.post(CHAT, json={"messages": [USER]})
    assert (response.status_code, error_of(response)["code"]) == (400, "constraints_failed")
    *_, last = read_events(await client.post(CHAT, json={"messages": [USER], "stream": True}))
    assert last["error"]["type"] == "invalid_request_error"
