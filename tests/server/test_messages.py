"""POST /v1/messages: what goes to the engine, the whole message, and its events."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.core.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams
from tests.server import scripted_core
from tests.server.named_events import read_named_events
from tests.server.scripted_core import TEXT, fails, says
from tests.server.test_chat import prompt_of

pytestmark = pytest.mark.anyio

URL = "/v1/messages"
USER = {"role": "user", "content": "Hi"}
BODY = {"model": "tiny", "max_tokens": 200, "messages": [USER]}
CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "é🦉"}}\n</tool_call>'
LOOK = {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {"at": {}}}}


@pytest.fixture(autouse=True)
def room_for_tools(monkeypatch):
    monkeypatch.setattr(scripted_core, "MAX_MODEL_LEN", 4096)  # a model of bytes needs many tokens to read of them


def error_of(response):
    """The error in a response, in Anthropic's envelope."""
    body = response.json()
    assert body.keys() == {"type", "error", "request_id"} and body["type"] == "error"
    assert body["request_id"] == response.headers["request-id"]
    assert body["error"].keys() == {"type", "message"}
    return body["error"]


async def test_the_whole_message(client):
    message = (await client.post(URL + "?beta=true", json=BODY, headers={"anthropic-beta": "x"})).json()
    assert message.pop("id").startswith("msg_")
    num_prompt_tokens, num_tokens = len("user: Hi\nassistant: "), len(TEXT.encode()) + 1
    assert message == {
        "type": "message",
        "role": "assistant",
        "model": "tiny",
        "content": [{"type": "text", "text": TEXT}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": num_prompt_tokens - 3,
            "output_tokens": num_tokens,
            "cache_read_input_tokens": 3,
            "cache_creation_input_tokens": 0,
        },
    }


async def test_parameters_reach_the_engine(client, core):
    fields = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "stop_sequences": ["a", "b"]}
    ignored = {"metadata": {"user_id": "u"}, "service_tier": "auto", "never_heard_of": 1}
    assert (await client.post(URL, json=BODY | fields | ignored)).status_code == 200
    assert core.requests[0].sampling_params == SamplingParams(
        temperature=0.5, top_p=0.9, top_k=7, stop=("a", "b"), max_tokens=200, output_kind=RequestOutputKind.FINAL_ONLY
    )


CONVERSATION = [
    {"role": "user", "content": [{"type": "text", "text": "One", "cache_control": {"type": "ephemeral"}}]},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "text", "text": "Two"},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "x"}},
            {"type": "tool_use", "id": "c2", "name": "look", "input": {"at": "x"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "three"},
            {
                "type": "tool_result",
                "tool_use_id": "c2",
                "content": [{"type": "text", "text": "four"}],
                "is_error": True,
            },
            {"type": "text", "text": "Five"},
        ],
    },
    {"role": "assistant", "content": "Six"},
    {"role": "user", "content": "Seven"},
]
WRITTEN_CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "x"}}\n</tool_call>'


@pytest.mark.parametrize("system", ["Be brief.", [{"type": "text", "text": "Be brief."}]])
async def test_messages_become_the_prompt(client, core, system):
    response = await client.post(URL, json=BODY | {"messages": CONVERSATION, "system": system})
    assert response.status_code == 200, response.text
    assert prompt_of(core.requests[0]) == (
        f"system: Be brief.\nuser: One\nassistant: Two\n{WRITTEN_CALL}\n{WRITTEN_CALL}\n"
        "user: <tool_response>\nthree\n</tool_response>\nuser: <tool_response>\nfour\n</tool_response>\n"
        "user: Five\nassistant: Six\nuser: Seven\nassistant: "
    )


async def test_the_assistant_s_words_are_continued(client, core):
    messages = [{"role": "system", "content": "Be brief."}, USER, {"role": "assistant", "content": "Once upon"}]
    response = await client.post(URL, json=BODY | {"messages": messages})
    assert response.status_code == 200, response.text
    assert prompt_of(core.requests[0]) == "system: Be brief.\nuser: Hi\nassistant: Once upon"


async def test_counting_tokens(client, core):
    body = {"model": "tiny", "messages": CONVERSATION, "system": "Be brief.", "tools": [LOOK]}
    counted = (await client.post(URL + "/count_tokens", json=body)).json()
    assert not core.requests
    await client.post(URL, json=BODY | body)
    assert counted == {"input_tokens": len(core.requests[0].prompt_token_ids)}


async def test_a_call(client, core):
    core.script = says("Let me see. " + CALL)
    elsewhere = [{"type": "web_search_20250305", "name": "web_search"}]
    message = (await client.post(URL, json=BODY | {"tools": [LOOK, *elsewhere]})).json()
    assert '"look"' in prompt_of(core.requests[0]) and "web_search" not in prompt_of(core.requests[0])
    text, call = message["content"]
    assert text["text"].strip() == "Let me see."
    assert call | {"id": ""} == {"type": "tool_use", "id": "", "name": "look", "input": {"at": "é🦉"}}
    assert call["id"] and message["stop_reason"] == "tool_use"


@pytest.mark.parametrize(
    ("choice", "is_constrained"),
    [({"type": "any"}, True), ({"type": "tool", "name": "look"}, True), ({"type": "auto"}, False)],
)
async def test_tool_choice(client, core, choice, is_constrained):
    assert (await client.post(URL, json=BODY | {"tools": [LOOK], "tool_choice": choice})).status_code == 200
    assert (core.requests[0].sampling_params.structured_outputs is not None) == is_constrained
    await client.post(URL, json=BODY | {"tools": [LOOK], "tool_choice": {"type": "none"}})
    assert "look" not in prompt_of(core.requests[1])


async def test_what_the_text_must_be(client, core):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    config = {"effort": "low", "format": {"type": "json_schema", "schema": schema}}
    assert (await client.post(URL, json=BODY | {"output_config": config})).status_code == 200
    assert core.requests[0].sampling_params.structured_outputs == StructuredOutputsParams(json=schema)


async def test_stop_reasons(client, core):
    core.script = says("Hal", "length")
    assert (await client.post(URL, json=BODY)).json()["stop_reason"] == "max_tokens"
    core.script = says(TEXT)
    message = (await client.post(URL, json=BODY | {"stop_sequences": ["lo,"]})).json()
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "lo,")
    assert message["content"] == [{"type": "text", "text": "Hal"}]
    core.script = says("")
    assert (await client.post(URL, json=BODY)).json()["content"] == [{"type": "text", "text": ""}]


async def test_a_call_that_is_cut(client, core):
    core.script = says(CALL[:-20], "length")
    message = (await client.post(URL, json=BODY | {"tools": [LOOK]})).json()
    assert message["content"][0]["input"] == {} and message["stop_reason"] == "max_tokens"


async def test_events(client, core):
    core.script = says("Let me see. " + CALL + "\n" + CALL)
    events = read_named_events(await client.post(URL, json=BODY | {"tools": [LOOK], "stream": True}))
    start, *blocks, delta, stop = events
    assert start["message"] | {"id": "", "usage": {}} == {
        "id": "",
        "type": "message",
        "role": "assistant",
        "model": "tiny",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {},
    }
    assert start["message"]["usage"]["input_tokens"] > 0 and start["message"]["usage"]["output_tokens"] == 0
    assert delta["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert delta["usage"]["output_tokens"] > 0
    assert stop == {"type": "message_stop"}
    for index, kind in enumerate(("text", "tool_use", "tool_use")):
        begin, *deltas, end = [event for event in blocks if event["index"] == index]
        assert begin["type"] == "content_block_start" and begin["content_block"]["type"] == kind
        assert end == {"type": "content_block_stop", "index": index}
        assert {event["type"] for event in deltas} == {"content_block_delta"}
        text = "".join(event["delta"].get("text", event["delta"].get("partial_json")) for event in deltas)
        if kind == "text":
            assert begin["content_block"]["text"] == "" and text.strip() == "Let me see."
        else:
            assert begin["content_block"]["input"] == {} and text == '{"at": "é🦉"}'
    assert [event["index"] for event in blocks] == sorted(event["index"] for event in blocks)


async def test_a_failure(client, core):
    core.script = fails
    response = await client.post(URL, json=BODY)
    assert (response.status_code, error_of(response)["type"]) == (500, "api_error")
    *_, last = read_named_events(await client.post(URL, json=BODY | {"stream": True}))
    assert last["error"]["type"] == "api_error" and "not finite" in last["error"]["message"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"max_tokens": None}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"messages": [{"role": "wizard", "content": "Hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "f"}]}]}, "content[0]"),
    ({"messages": [{"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "a"}]}]}, "content[0]"),
    ({"tools": [{"name": 5}]}, "tools[0].function.name"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tool_choice": {"type": "tool", "name": "f"}}, "tool_choice"),
    ({"temperature": 9}, "temperature"),
    ({"thinking": {"type": "deep"}}, "thinking.type"),
    ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
]


@pytest.mark.parametrize(("fields", "named"), REFUSED, ids=lambda value: str(value)[:60])
async def test_refused(client, core, fields, named):
    response = await client.post(URL, json=BODY | fields)
    assert response.status_code == 400, response.text
    error = error_of(response)
    assert error["type"] == "invalid_request_error" and named in error["message"]
    assert not core.requests


async def test_an_unknown_model(client):
    response = await client.post(URL, json=BODY | {"model": "claude-99"})
    assert (response.status_code, error_of(response)["type"]) == (404, "not_found_error")
