"""The table of errors: each row an input that cannot be served, and the status, the code and the field it is told."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from tests.server.scripted_core import MAX_MODEL_LEN
from tests.server.test_errors import error_of

pytestmark = pytest.mark.anyio

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


class Row(NamedTuple):
    """`fields` go into an otherwise right body; bytes are sent as they are."""

    path: str
    fields: dict[str, Any] | bytes
    param: str | None = None
    code: str = "invalid_value"
    status: int = 400


def schema(**fields: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "s", **fields}}}


def image(url: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}


BAD_BODIES = {
    "broken": b'{"prompt": ',
    "empty": b"",
    "array": b"[]",
    "string": b'"Hi"',
    "null": b"null",
    "two objects": b'{"prompt": "Hi"}{"prompt": "Hi"}',
    "invalid UTF-8": b'{"prompt": "\xff"}',
    "half a surrogate pair": b'{"prompt": "\\ud800"}',
    "nested too deeply": b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "NaN": b'{"prompt": "Hi", "temperature": NaN}',
    "Infinity": b'{"prompt": "Hi", "temperature": Infinity}',
    "1e999": b'{"prompt": "Hi", "temperature": 1e999}',
}

ROWS: dict[str, Row] = {
    **{f"body: {name}": Row(COMPLETIONS, body, None, "invalid_json") for name, body in BAD_BODIES.items()},
    "unknown model": Row(CHAT, {"model": "gpt-99"}, "model", "model_not_found", 404),
    "messages missing": Row(CHAT, b"{}", "messages"),
    "messages null": Row(CHAT, {"messages": None}, "messages"),
    "messages of the wrong type": Row(CHAT, {"messages": "Hi"}, "messages"),
    "a message of the wrong type": Row(CHAT, {"messages": ["Hi"]}, "messages[0]"),
    "messages empty": Row(CHAT, {"messages": []}, "messages"),
    "unknown role": Row(CHAT, {"messages": [USER, {"role": "wizard", "content": "Hi"}]}, "messages[1].role"),
    "content null": Row(CHAT, {"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    "content an int": Row(CHAT, {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    "bad part type": Row(
        CHAT, {"messages": [{"role": "user", "content": [{"type": "smell"}]}]}, "messages[0].content[0].type"
    ),
    "image on a text model": Row(CHAT, image("data:image/png;base64,AAAA"), "messages[0].content[0].type"),
    "bad base64": Row(CHAT, image("data:image/png;base64,!"), "messages[0].content[0].type"),
    "prompt too long": Row(COMPLETIONS, {"prompt": "x" * MAX_MODEL_LEN}, None, "context_length_exceeded"),
    "prompt too long, streamed": Row(
        COMPLETIONS, {"prompt": "x" * MAX_MODEL_LEN, "stream": True}, None, "context_length_exceeded"
    ),
    "conversation too long, streamed": Row(
        CHAT,
        {"messages": [{"role": "user", "content": "x" * MAX_MODEL_LEN}], "stream": True},
        None,
        "context_length_exceeded",
    ),
    "max_tokens > context": Row(CHAT, {"max_tokens": MAX_MODEL_LEN + 1}, "max_tokens", "context_length_exceeded"),
    "max_tokens 0": Row(CHAT, {"max_tokens": 0}, "max_tokens"),
    "max_tokens -5": Row(CHAT, {"max_tokens": -5}, "max_tokens"),
    "max_tokens 0 without echo": Row(COMPLETIONS, {"max_tokens": 0}, "max_tokens"),
    "temperature < 0": Row(CHAT, {"temperature": -0.1}, "temperature"),
    "temperature > 2": Row(CHAT, {"temperature": 2.1}, "temperature"),
    "temperature hot": Row(CHAT, {"temperature": "hot"}, "temperature"),
    "top_p 0": Row(CHAT, {"top_p": 0}, "top_p"),
    "top_p 1.5": Row(CHAT, {"top_p": 1.5}, "top_p"),
    "n 0": Row(CHAT, {"n": 0}, "n"),
    "n beyond the limit": Row(CHAT, {"n": 129}, "n"),
    "n 2 at temperature 0": Row(CHAT, {"n": 2, "temperature": 0}, "n"),
    "presence_penalty 5": Row(CHAT, {"presence_penalty": 5}, "presence_penalty"),
    "top_logprobs 100": Row(CHAT, {"logprobs": True, "top_logprobs": 100}, "top_logprobs"),
    "top_logprobs without logprobs": Row(CHAT, {"top_logprobs": 2}, "top_logprobs"),
    "100 stops": Row(CHAT, {"stop": ["x"] * 100}, "stop"),
    "stop empty": Row(CHAT, {"stop": [""]}, "stop"),
    "seed 2**70": Row(CHAT, {"seed": 2**70}, "seed"),
    "logit_bias: bad key": Row(CHAT, {"logit_bias": {"five": 1}}, "logit_bias"),
    "logit_bias: out of the vocabulary": Row(CHAT, {"logit_bias": {"100000": 1}}, "logit_bias"),
    "logit_bias: value 1000": Row(CHAT, {"logit_bias": {"5": 1000}}, "logit_bias"),
    "stream_options without stream": Row(CHAT, {"stream_options": {"include_usage": True}}, "stream_options"),
    "completions: no prompt": Row(COMPLETIONS, b"{}", "prompt"),
    "completions: empty text": Row(COMPLETIONS, {"prompt": ""}),
    "completions: empty list": Row(COMPLETIONS, {"prompt": []}, "prompt"),
    "completions: id out of range": Row(COMPLETIONS, {"prompt": [10**6]}, "prompt"),
    "completions: id -1": Row(COMPLETIONS, {"prompt": [-1]}, "prompt"),
    "completions: suffix": Row(COMPLETIONS, {"suffix": "end"}, "suffix", "unsupported_parameter"),
}


async def post(client, path: str, fields: dict[str, Any] | bytes):
    right = {"prompt": "Hi"} if path == COMPLETIONS else {"messages": [USER]}
    content = fields if isinstance(fields, bytes) else json.dumps(right | fields).encode()
    return await client.post(path, content=content, headers={"content-type": "application/json"})


@pytest.mark.parametrize("name", ROWS)
async def test_row(client, core, name):
    row = ROWS[name]
    response = await post(client, row.path, row.fields)
    error = error_of(response)
    assert (response.status_code, error["code"], error["param"]) == (row.status, row.code, row.param), response.text
    assert error["type"] == ("not_found_error" if row.status == 404 else "invalid_request_error")
    assert "\n" not in error["message"]
    assert not core.requests
    assert (await post(client, row.path, {})).status_code == 200


# The rest of the table is about features whose codes differ: what counts is a 400 that names the field.
REFUSED_FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "response_format unknown": ({"response_format": {"type": "yaml"}}, "response_format"),
    "json_schema without schema": (schema(), "response_format"),
    "bad schema": (schema(schema="banana"), "response_format"),
    "tool_choice without tools": ({"tool_choice": "required"}, "tool_choice"),
    "tool_choice of an unknown function": (
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
        "tool",
    ),
}


@pytest.mark.parametrize("name", REFUSED_FIELDS)
async def test_row_of_a_feature(client, core, name):
    fields, field = REFUSED_FIELDS[name]
    for stream in (False, True):
        response = await post(client, CHAT, fields | {"stream": stream})
        assert response.status_code == 400, response.text
        assert (error_of(response)["param"] or "").startswith(field)
    assert not core.requests


async def test_rows_that_are_served(client):
    extras = {"user": "u", "never_heard_of": [1], "tools": [], "max_tokens": None, "stop": None, "seed": None}
    assert (await post(client, CHAT, extras)).status_code == 200
    assert (await post(client, CHAT, {"max_tokens": MAX_MODEL_LEN})).status_code == 200  # clipped with the prompt
    assert (await client.post(f"{CHAT}/", json={"messages": [USER]})).status_code == 200


async def test_row_content_type(client, core):
    body = json.dumps({"prompt": "Hi"})
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "é"):
        headers = {"content-type": content_type.encode()}
        response = await client.post(COMPLETIONS, content=body, headers=headers)
        assert (response.status_code, error_of(response)["code"]) == (400, "invalid_content_type")
    assert not core.requests


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", CHAT, 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/v1/nothing", 404, "not_found"),
        ("POST", "/", 405, "method_not_allowed"),
        ("GET", "/v2/models", 404, "not_found"),
    ],
)
async def test_row_routes(client, method, path, status, code):
    response = await client.request(method, path)
    error = error_of(response)
    assert (response.status_code, error["code"], error["param"]) == (status, code, None)
    assert error["type"] == ("not_found_error" if status == 404 else "invalid_request_error")
    assert ("allow" in response.headers) == (status == 405)


@pytest.mark.parametrize("path", ["/v1/messages/nothing", "/messages//nothing"])
async def test_errors_of_anthropic_routes_have_anthropics_form(client, path):
    response = await client.get(path)
    body = response.json()
    message = body["error"].pop("message")
    assert "not found" in message.lower()
    assert response.status_code == 404
    assert body == {
        "type": "error",
        "error": {"type": "not_found_error"},
        "request_id": response.headers["request-id"],
    }
