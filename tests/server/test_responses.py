"""POST /v1/responses: what goes to the engine, the whole response, and what can be done with it afterwards."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from octavo.core.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams
from octavo.server.openai.response_store import ResponseStore, StoredResponse
from tests.server import scripted_core
from tests.server.named_events import read_named_events
from tests.server.openai_schemas import assert_valid
from tests.server.scripted_core import TEXT, fails, says
from tests.server.test_chat import prompt_of
from tests.server.test_errors import error_of

pytestmark = pytest.mark.anyio

URL = "/v1/responses"
CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "é🦉"}}\n</tool_call>'
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}


@pytest.fixture(autouse=True)
def room_for_tools(monkeypatch):
    monkeypatch.setattr(scripted_core, "MAX_MODEL_LEN", 4096)  # a model of bytes needs many tokens to read of them


async def test_the_whole_response(client):
    response = (await client.post(URL, json={"input": "Hi"})).json()
    assert_valid(response, "Response")
    assert response["status"] == "completed" and response["incomplete_details"] is None
    [message] = response["output"]
    assert message["id"].startswith("msg_") and response["id"].startswith("resp_")
    assert (message["type"], message["role"], message["status"]) == ("message", "assistant", "completed")
    assert message["content"] == [{"type": "output_text", "text": TEXT, "annotations": [], "logprobs": []}]
    num_prompt_tokens, num_tokens = len("user: Hi\nassistant: "), len(TEXT.encode()) + 1
    assert response["usage"] == {
        "input_tokens": num_prompt_tokens,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": num_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": num_prompt_tokens + num_tokens,
    }


async def test_parameters_reach_the_engine_and_are_repeated(client, core):
    sent: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "max_output_tokens": 40, "instructions": "Be brief."}
    sent |= {"metadata": {"a": "b"}, "parallel_tool_calls": False, "truncation": "auto", "tools": [LOOK]}
    extra = {"top_k": 7, "seed": 5, "user": "u", "prompt_cache_key": "k", "service_tier": "auto", "never_heard_of": 1}
    response = (await client.post(URL, json={"input": "Hi"} | sent | extra)).json()
    assert {name: response[name] for name in sent if name != "tools"} == {k: v for k, v in sent.items() if k != "tools"}
    assert response["tools"] == [LOOK | {"strict": None}]
    params = core.requests[0].sampling_params
    assert (params.temperature, params.top_p, params.top_k, params.seed) == (0.5, 0.9, 7, 5)
    assert params.max_tokens == 40
    assert "Be brief." in prompt_of(core.requests[0]) and '"look"' in prompt_of(core.requests[0])


async def test_defaults(client, core):
    await client.post(URL, json={"input": "Hi"})
    assert core.requests[0].sampling_params == SamplingParams(max_tokens=None, output_kind=RequestOutputKind.FINAL_ONLY)


async def test_input_becomes_the_prompt(client, core):
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at": "x"}'}
    items = [
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "One"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]},
        {"type": "message", "role": "assistant", "id": "m", "content": [{"type": "output_text", "text": "Two"}]},
        call,
        call | {"call_id": "c2"},
        {"type": "function_call_output", "call_id": "c1", "output": "three"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "four"}]},
        {"type": "function_call_output", "name": "goal", "namespace": "agent", "output": "five"},  # Codex, unasked
        {"role": "user", "content": "Six"},
    ]
    response = await client.post(URL, json={"input": items, "instructions": "Speak up."})
    assert response.status_code == 200, response.text
    written = '<tool_call>\n{"name": "look", "arguments": {"at": "x"}}\n</tool_call>'
    assert prompt_of(core.requests[0]) == (
        "system: Speak up.\nsystem: Be brief.\nuser: One\n"
        f"assistant: Two\n{written}\n{written}\n"
        "user: <tool_response>\nthree\n</tool_response>\nuser: <tool_response>\nfour\n</tool_response>\n"
        "user: five\nuser: Six\nassistant: "
    )


async def test_tools_that_run_elsewhere_are_left_out(client, core):
    elsewhere = [{"type": "web_search"}, {"type": "namespace", "name": "n"}, {"type": "custom", "name": "patch"}]
    body = {"input": "Hi", "tools": [*elsewhere, LOOK], "include": ["reasoning.encrypted_content"], "store": False}
    response = await client.post(URL, json=body | {"tool_choice": "auto", "client_metadata": {"a": "b"}})
    assert response.status_code == 200, response.text
    assert [tool["type"] for tool in response.json()["tools"]] == ["function"]
    assert '"look"' in prompt_of(core.requests[0]) and "patch" not in prompt_of(core.requests[0])


async def test_a_call(client, core):
    core.script = says("Let me see. " + CALL)
    response = (await client.post(URL, json={"input": "Hi", "tools": [LOOK]})).json()
    assert_valid(response, "Response")
    message, call = response["output"]
    assert message["content"][0]["text"].strip() == "Let me see."
    assert (call["type"], call["name"], json.loads(call["arguments"])) == ("function_call", "look", {"at": "é🦉"})
    assert call["id"].startswith("fc_") and call["call_id"].startswith("call_") and call["status"] == "completed"


async def test_logprobs(client, core):
    core.script = says("é", "length")
    body = {"input": "Hi", "include": ["message.output_text.logprobs"], "top_logprobs": 1}
    response = (await client.post(URL, json=body)).json()
    assert_valid(response, "Response")
    entries = response["output"][0]["content"][0]["logprobs"]
    assert bytes(byte for entry in entries for byte in entry["bytes"]).decode() == "é"
    assert {len(entry["top_logprobs"]) for entry in entries} == {1}


async def test_a_response_that_is_cut(client, core):
    core.script = says("Hal", "length")
    response = (await client.post(URL, json={"input": "Hi"})).json()
    assert_valid(response, "Response")
    assert response["status"] == response["output"][0]["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("text_format", "constraint"),
    [
        ({"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}, StructuredOutputsParams(json=SCHEMA)),
        ({"type": "json_object"}, StructuredOutputsParams(json_object=True)),
        ({"type": "text"}, None),
        (None, None),
    ],
)
async def test_what_the_text_must_be(client, core, text_format, constraint):
    response = (await client.post(URL, json={"input": "Hi", "text": {"format": text_format}})).json()
    assert_valid(response, "Response")
    assert response["text"]["format"] == (text_format or {"type": "text"})
    assert core.requests[0].sampling_params.structured_outputs == constraint


async def test_an_empty_answer_is_a_message(client, core):
    core.script = says("")
    response = (await client.post(URL, json={"input": "Hi"})).json()
    assert response["output"][0]["content"][0]["text"] == ""


async def test_going_on_from_a_response(client, core):
    core.script = says("Two " + CALL)
    first = (await client.post(URL, json={"input": "One", "tools": [LOOK], "instructions": "I"})).json()
    core.script = says("Four")
    output = {"type": "function_call_output", "call_id": first["output"][1]["call_id"], "output": "three"}
    second = (await client.post(URL, json={"input": [output], "previous_response_id": first["id"]})).json()
    await client.post(URL, json={"input": "Five", "previous_response_id": second["id"]})
    call = CALL.replace("é🦉", "é🦉")
    assert prompt_of(core.requests[-1]) == (
        f"user: One\nassistant: Two\n{call}\nuser: <tool_response>\nthree\n</tool_response>\n"
        "assistant: Four\nuser: Five\nassistant: "
    )
    assert (await client.get(f"{URL}/{second['id']}")).json() == second
    assert error_of(await client.get(f"{URL}/{second['id']}?stream=true"))["param"] == "stream"
    deleted = (await client.delete(f"{URL}/{first['id']}")).json()
    assert deleted == {"object": "response", "id": first["id"], "deleted": True}
    for response in (
        await client.get(f"{URL}/{first['id']}"),
        await client.delete(f"{URL}/{first['id']}"),
        await client.post(f"{URL}/{first['id']}/cancel"),
        await client.post(URL, json={"input": "Hi", "previous_response_id": first["id"]}),
    ):
        assert (response.status_code, error_of(response)["code"]) == (404, "response_not_found")
    # A conversation does not depend on what it was made of.
    assert (await client.post(URL, json={"input": "Hi", "previous_response_id": second["id"]})).status_code == 200


async def test_what_is_not_stored_is_not_there(client):
    response = (await client.post(URL, json={"input": "Hi", "store": False})).json()
    assert response["store"] is False
    assert (await client.get(f"{URL}/{response['id']}")).status_code == 404


def test_the_store_is_bounded():
    def stored(number: int) -> StoredResponse:
        return StoredResponse(_response(f"resp_{number}"), [{"role": "user", "content": "x" * 1000}])

    store = ResponseStore(max_bytes=10_000)
    for number in range(100):
        store.put("me", stored(number))
        store.get("me", "resp_0")  # asked for again and again: it stays
    kept = [number for number in range(100) if ("me", f"resp_{number}") in store._stored]
    assert kept[0] == 0 and kept[1:] == list(range(101 - len(kept), 100)) and 3 < len(kept) < 10
    assert store._num_bytes == sum(item.num_bytes for item in store._stored.values()) <= 10_000
    with pytest.raises(Exception, match="does not exist"):
        store.get("somebody else", "resp_99")


def _response(response_id: str):
    import msgspec

    from octavo.server.openai.responses_protocol import Response

    fields: dict[str, Any] = dict.fromkeys(("instructions", "previous_response_id", "max_output_tokens"))
    fields |= {"temperature": 1.0, "top_p": 1.0, "text": {}, "reasoning": {}, "tools": [], "tool_choice": "auto"}
    fields |= {"parallel_tool_calls": True, "truncation": "auto", "metadata": {}, "store": True, "background": False}
    fields |= {"object": "response", "id": response_id, "created_at": 0, "model": "m", "output": []}
    return msgspec.convert(fields, Response)


async def test_in_the_background(client, core):
    core.is_holding = True
    begun = (await client.post(URL, json={"input": "Hi", "background": True})).json()
    assert_valid(begun, "Response")
    assert (begun["status"], begun["output"]) == ("in_progress", [])
    while not core.requests:
        await asyncio.sleep(0.001)
    assert (await client.get(f"{URL}/{begun['id']}")).json()["status"] == "in_progress"
    followed = await client.post(URL, json={"input": "Go on", "previous_response_id": begun["id"]})
    assert error_of(followed)["param"] == "previous_response_id"
    core.answer(core.requests[0])
    while (ended := (await client.get(f"{URL}/{begun['id']}")).json())["status"] == "in_progress":
        await asyncio.sleep(0.001)
    assert ended["status"] == "completed" and ended["output"][0]["content"][0]["text"] == TEXT
    assert (await client.post(f"{URL}/{begun['id']}/cancel")).json() == ended


async def test_cancelling(client, core):
    core.is_holding = True
    begun = (await client.post(URL, json={"input": "Hi", "background": True})).json()
    while not core.requests:
        await asyncio.sleep(0.001)
    cancelled = (await client.post(f"{URL}/{begun['id']}/cancel")).json()
    assert_valid(cancelled, "Response")
    assert cancelled["status"] == "cancelled"
    assert core.aborted == [core.requests[0].request_id]
    core.is_holding = False
    ordinary = (await client.post(URL, json={"input": "Hi"})).json()
    assert error_of(await client.post(f"{URL}/{ordinary['id']}/cancel"))["code"] == "invalid_value"


async def test_a_failure(client, core):
    core.script = fails
    response = await client.post(URL, json={"input": "Hi"})
    assert (response.status_code, error_of(response)["code"]) == (500, "generation_failed")
    begun = (await client.post(URL, json={"input": "Hi", "background": True})).json()
    while (ended := (await client.get(f"{URL}/{begun['id']}")).json())["status"] == "in_progress":
        await asyncio.sleep(0.001)
    assert_valid(ended, "Response")
    assert ended["status"] == "failed" and "not finite" in ended["error"]["message"]


REFUSED: list[tuple[dict[str, Any], str | None]] = [
    ({"input": None}, "input"),
    ({"input": []}, "messages"),
    ({"input": 5}, "input"),
    ({"input": ["Hi"]}, "input[0]"),
    ({"input": [{"role": "wizard", "content": "Hi"}]}, "input[0].role"),
    ({"input": [{"role": "user"}]}, "input[0].content"),
    ({"input": [{"type": "item_reference", "id": "m"}]}, "input[0].type"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content[0].type"),
    ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
    ({"input": [{"role": "user", "content": [{"type": ["x"]}]}]}, "input[0].content[0].type"),
    ({"tools": [{"type": "function"}]}, "tools[0].function.name"),
    ({"tools": [{"type": "teleport"}]}, "tools[0].type"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
    ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
    ({"text": {"format": {"type": "poem"}}}, "text.format.type"),
    ({"temperature": 9}, "temperature"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"top_logprobs": 21}, "top_logprobs"),
    ({"model": "gpt-99"}, "model"),
    ({"conversation": "c"}, "conversation"),
    ({"background": True, "stream": True}, "background"),
    ({"background": True, "store": False}, "background"),
    ({"metadata": {"a": 5}}, "metadata[...]"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED, ids=lambda value: str(value)[:60])
async def test_refused(client, core, fields, param):
    response = await client.post(URL, json={"input": "Hi"} | fields)
    assert response.status_code == (404 if param == "model" else 400), response.text
    assert error_of(response)["param"] == param
    assert not core.requests


async def test_events(client, core):
    core.script = says("Let me see. " + CALL + "\n" + CALL)
    response = await client.post(URL, json={"input": "Hi", "tools": [LOOK], "stream": True})
    events = read_named_events(response)
    for number, event in enumerate(events):
        assert event["sequence_number"] == number
        assert_valid(event, "ResponseStreamEvent")
    kinds = [event["type"].removeprefix("response.") for event in events]
    message = ["output_item.added", "content_part.added", "output_text.delta", "output_text.done"]
    message += ["content_part.done", "output_item.done"]
    call = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]
    deduplicated = [kind for i, kind in enumerate(kinds) if kinds[i - 1 : i] != [kind]]
    assert deduplicated == ["created", "in_progress", *message, *call, *call, "completed"]
    final = events[-1]["response"]
    assert events[0]["response"]["output"] == [] and "usage" not in events[0]["response"]
    assert [event["item"] for event in events if event["type"].endswith("item.done")] == final["output"]
    for index, item in enumerate(final["output"]):
        mine = [event for event in events if event.get("output_index") == index]
        assert {event.get("item_id", item["id"]) for event in mine} == {item["id"]}
        deltas = "".join(event.get("delta", "") for event in mine)
        assert deltas == (item["content"][0]["text"] if item["type"] == "message" else item["arguments"])
    assert (await client.get(f"{URL}/{final['id']}")).json() == final


async def test_events_of_a_response_that_is_cut(client, core):
    core.script = says("Hal", "length")
    events = read_named_events(await client.post(URL, json={"input": "Hi", "stream": True}))
    assert events[-1]["type"] == "response.incomplete"
    assert_valid(events[-1], "ResponseStreamEvent")


async def test_events_of_a_failure(client, core):
    core.script = fails
    events = read_named_events(await client.post(URL, json={"input": "Hi", "stream": True}))
    assert events[-1]["type"] == "response.failed"
    assert_valid(events[-1], "ResponseStreamEvent")
    assert "not finite" in events[-1]["response"]["error"]["message"]


async def test_refusals_come_before_the_stream(client):
    response = await client.post(URL, json={"input": "x" * 5000, "stream": True})
    assert (response.status_code, error_of(response)["code"]) == (400, "context_length_exceeded")
