"""POST /v1/chat/completions with tools and reasoning: what models read, what they may write, what clients get."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from octavo.server.app import create_app
from octavo.server.server_config import ServerConfig
from tests.engine.tiny_model import byte_id
from tests.server.conftest import client_of
from tests.server.events import read_events
from tests.server.openai_schemas import assert_valid
from tests.server.scripted_core import ScriptedCore, says

pytestmark = pytest.mark.anyio

URL = "/v1/chat/completions"
USER = {"role": "user", "content": "Hi"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": SCHEMA}}
STRICT = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA, "strict": True}}
NOW = {"type": "function", "function": {"name": "now"}}
BODY: dict[str, Any] = {"messages": [USER], "tools": [WEATHER, NOW], "seed": 1}
PARIS = '{"city": "Paris, \\"é\\""}'
CALLS = (
    f'Let me see.\n<tool_call>\n{{"name": "weather", "arguments": {PARIS}}}\n</tool_call>\n'
    '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
)


@pytest.fixture
async def core(anyio_backend: str) -> ScriptedCore:
    """One for longer prompts than there are elsewhere."""
    core = ScriptedCore()
    core.max_model_len = 1024
    return core


@pytest.fixture
async def open_client(engine):
    """Opens a client of an application with these settings."""
    clients = []

    def open_client(**settings: Any):
        clients.append(client_of(create_app(engine, ServerConfig(**settings))))
        return clients[-1]

    yield open_client
    for client in clients:
        await client.aclose()


def prompt_of(request) -> str:
    return bytes(token_id - byte_id(0) for token_id in request.prompt_token_ids).decode()


async def ask(client, **fields: Any) -> dict[str, Any]:
    response = await client.post(URL, json=BODY | fields)
    assert response.status_code == 200, response.text
    return response.json()


async def stream(client, **fields: Any) -> list[dict[str, Any]]:
    return read_events(await client.post(URL, json=BODY | {"stream": True} | fields))


def put_together(events: list[dict[str, Any]], index: int = 0) -> dict[str, Any]:
    """The message that a client makes of a choice's chunks: strings are joined, calls found by their index."""
    message: dict[str, Any] = {}
    choices = [choice for event in events for choice in event["choices"] if choice["index"] == index]
    for choice in choices:
        delta = choice["delta"]
        for call in delta.pop("tool_calls", []):
            calls = message.setdefault("tool_calls", [])
            if call["index"] == len(calls):
                assert set(call) == {"index", "id", "type", "function"} and call["function"]["arguments"] == ""
                calls.append({"id": call["id"], "type": call["type"], "function": dict(call["function"])})
            else:
                assert set(call) == {"index", "function"} and set(call["function"]) == {"arguments"}
                assert call["index"] == len(calls) - 1
                calls[-1]["function"]["arguments"] += call["function"]["arguments"]
        for name, text in delta.items():
            message[name] = message.get(name, "") + text
    assert [choice["finish_reason"] for choice in choices[:-1]] == [None] * (len(choices) - 1)
    return message | {"finish_reason": choices[-1]["finish_reason"]}


async def test_the_model_is_told_of_the_tools(client, core):
    await ask(client, messages=[{"role": "system", "content": "Be brief."}, USER])
    prompt = prompt_of(core.requests[0])
    assert prompt.startswith("system: Be brief.\n\n# Tools\n")
    assert f"\n{json.dumps(WEATHER)}\n{json.dumps(NOW)}\n</tools>" in prompt
    await ask(client, tool_choice="none")
    assert prompt_of(core.requests[1]) == "user: Hi\nassistant: "


async def test_the_whole_answer(client, core):
    core.script = says(CALLS)
    body = await ask(client)
    [choice] = body["choices"]
    assert choice["finish_reason"] == "tool_calls"
    message = choice["message"]
    weather, now = message.pop("tool_calls")
    assert message == {"role": "assistant", "content": "Let me see.", "refusal": None}
    assert weather == {
        "id": weather["id"],
        "type": "function",
        "function": {"name": "weather", "arguments": PARIS},
    }
    assert now["function"] == {"name": "now", "arguments": "{}"} and now["id"] != weather["id"]
    assert body["usage"]["completion_tokens"] == len(CALLS.encode()) + 1
    core.script = says(CALLS.removeprefix("Let me see.\n"))
    assert (await ask(client))["choices"][0]["message"]["content"] is None


@pytest.mark.parametrize("n", [1, 2])
async def test_the_stream_comes_to_the_whole_answer(client, core, n):
    core.script = says(CALLS)
    whole = await ask(client, n=n)
    events = await stream(client, n=n)
    for index in range(n):
        expected = whole["choices"][index]["message"]
        message = put_together(events, index)
        for call, same in zip(message["tool_calls"], expected["tool_calls"], strict=True):
            same["id"] = call["id"]
        del expected["refusal"]
        assert message == expected | {"finish_reason": "tool_calls"}


async def test_answers_are_as_openai_describes_them(open_client, core):
    core.script = says("<think>Hm.</think>" + CALLS)
    client = open_client(reasoning_parser="qwen3")
    for fields in ({}, {"tool_choice": "required", "logprobs": True}, {"parallel_tool_calls": False}):
        assert_valid(await ask(client, **fields), "CreateChatCompletionResponse")
        for event in await stream(client, **fields):
            assert_valid(event, "CreateChatCompletionStreamResponse")


async def test_a_call_that_the_length_limit_cuts_off(client, core):
    core.script = says(CALLS[:70], "length")
    [choice] = (await ask(client))["choices"]
    assert choice["finish_reason"] == "length"
    [call] = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "weather" and PARIS.startswith(call["function"]["arguments"])
    assert put_together(await stream(client))["finish_reason"] == "length"


async def test_one_call_unless_several_are_wanted(client, core):
    core.script = says(CALLS)
    for message in (
        (await ask(client, parallel_tool_calls=False))["choices"][0]["message"],
        put_together(await stream(client, parallel_tool_calls=False)),
    ):
        assert [call["function"]["name"] for call in message["tool_calls"]] == ["weather"]


async def test_log_probabilities_are_those_of_all_tokens(client, core):
    core.script = says(CALLS)
    [whole] = (await ask(client, logprobs=True, return_token_ids=True))["choices"]
    events = await stream(client, logprobs=True, return_token_ids=True)
    choices = [choice for event in events for choice in event["choices"]]
    entries = [entry for choice in choices if choice["logprobs"] for entry in choice["logprobs"]["content"]]
    assert entries == whole["logprobs"]["content"]
    assert [i for choice in choices for i in choice.get("token_ids", [])] == whole["token_ids"]
    assert bytes(byte for entry in entries[:-1] for byte in entry["bytes"]).decode() == CALLS


async def test_a_call_that_is_required_is_a_matter_of_grammar(client, core):
    core.script = says(CALLS)
    named = {"type": "function", "function": {"name": "weather"}}
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}
    reasons = [
        (await ask(client, tool_choice=choice))["choices"][0]["finish_reason"]
        for choice in ("auto", "required", named, allowed)
    ]
    assert reasons == ["tool_calls", "tool_calls", "stop", "tool_calls"]  # as OpenAI has it
    free, *constrained = [request.sampling_params.structured_outputs for request in core.requests]
    assert free is None
    both, one, allowed_one = [params.grammar for params in constrained]
    assert "weather" in both and "now" in both and "now" not in one + allowed_one
    assert "call)*" in allowed_one and "call)*" not in one  # a function that is named is called once
    await ask(client, tools=[STRICT])
    assert core.requests[-1].sampling_params.structured_outputs.grammar.startswith(
        "start: answer\nanswer: (text_before called)?"
    )


async def test_what_is_prescribed_for_the_text_does_not_matter_to_a_call_that_is_required(client, core):
    core.script = says(CALLS)
    json_schema = {"name": "n", "schema": {"type": "object", "properties": {"unheard": {}}}}
    await ask(client, tool_choice="required", response_format={"type": "json_schema", "json_schema": json_schema})
    grammar = core.requests[0].sampling_params.structured_outputs.grammar
    assert "weather" in grammar and "unheard" not in grammar


async def test_calls_and_results_of_before_are_told_in_the_words_of_the_model(client, core):
    calls = [
        {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": PARIS}},
        {"id": "call_2", "type": "function", "function": {"name": "now", "arguments": ""}},
    ]
    messages = [
        USER,
        {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "Rain."}]},
    ]
    await ask(client, messages=messages, tools=[])
    written = CALLS.removeprefix("Let me see.\n")
    result = "<tool_response>\nRain.\n</tool_response>"
    assert prompt_of(core.requests[0]) == f"user: Hi\nassistant: {written}\nuser: {result}\nassistant: "


async def test_mistral_calls_have_ids_of_nine_letters(open_client, core):
    core.script = says('[TOOL_CALLS][{"name": "now", "arguments": {}}]')
    [choice] = (await ask(open_client(tool_call_parser="mistral")))["choices"]
    [call] = choice["message"]["tool_calls"]
    assert len(call["id"]) == 9 and call["id"].isalnum()


THOUGHTS = "<think>\nIt is é.\n</think>\n\n"


async def test_reasoning(open_client, core):
    client = open_client(reasoning_parser="qwen3")
    core.script = says(THOUGHTS + CALLS)
    body = await ask(client)
    message = body["choices"][0]["message"]
    assert message["reasoning_content"] == message["reasoning"] == "It is é."
    assert message["content"] == "Let me see." and len(message["tool_calls"]) == 2
    num_reasoning_tokens = len(THOUGHTS.strip().encode())
    assert body["usage"]["completion_tokens_details"] == {"reasoning_tokens": num_reasoning_tokens}
    *events, last = await stream(client, stream_options={"include_usage": True})
    assert last["usage"] == body["usage"]
    streamed = put_together(events)
    assert streamed["reasoning_content"] == streamed["reasoning"] == "It is é."
    assert streamed["content"] == "Let me see." and streamed["finish_reason"] == "tool_calls"


async def test_reasoning_is_left_out_on_request(open_client, core):
    client = open_client(reasoning_parser="qwen3")
    core.script = says(THOUGHTS + "Yes.")
    expected = {"role": "assistant", "content": "Yes."}
    body = await ask(client, include_reasoning=False)
    assert body["choices"][0]["message"] == expected | {"refusal": None}
    assert put_together(await stream(client, include_reasoning=False)) == expected | {"finish_reason": "stop"}
    core.script = says("Yes.")
    assert (await ask(client))["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}


async def test_reasoning_that_the_prompt_opens(open_client, core):
    client = open_client(reasoning_parser="deepseek_r1", trust_request_chat_template=True)
    core.script = says("It is.\n</think>\nYes.")
    template = "{{ messages[0].content }}<think>\n{{ reasoning_effort }}{{ enable_thinking }}"
    message = (await ask(client, chat_template=template + "<think>\n"))["choices"][0]["message"]
    assert (message["reasoning"], message["content"]) == ("It is.", "Yes.")
    await ask(client, chat_template=template, reasoning_effort="none", tools=[])
    assert prompt_of(core.requests[-1]) == "Hi<think>\nnoneFalse"


async def test_a_call_is_required_after_the_reasoning(open_client, core):
    await ask(open_client(reasoning_parser="qwen3"), tool_choice="required")
    grammar = core.requests[0].sampling_params.structured_outputs.grammar
    assert grammar.startswith('start: ("<think>" thoughts)? BLANKS answer\n')


async def test_the_last_message_is_continued(client, core):
    messages = [USER, {"role": "assistant", "content": "Hello, "}]
    await ask(client, messages=messages, tools=[], continue_final_message=True)
    assert prompt_of(core.requests[0]) == "user: Hi\nassistant: Hello, "
    both = {"messages": messages, "continue_final_message": True, "add_generation_prompt": True}
    response = await client.post(URL, json=both)
    assert response.status_code == 400 and response.json()["error"]["param"] == "continue_final_message"


@pytest.mark.parametrize("choice", ["auto", "required"])
async def test_a38_parameters_without_end_are_refused(client, core, choice):
    parameters = msgspec.json.decode('{"anyOf": [' * 400 + "{}" + "]}" * 400)
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters, "strict": True}}
    body = {"messages": [USER], "tools": [tool], "tool_choice": choice}
    error = (await client.post(URL, content=msgspec.json.encode(body))).json()["error"]
    assert error["param"] == "tools" and "nested too deeply" in error["message"]
    assert core.requests == []


async def test_a32_tools_beyond_any_prompt_are_refused(client):
    tool = {"type": "function", "function": {"name": "f", "description": "x" * (1 << 20)}}
    error = (await client.post(URL, json=BODY | {"tools": [tool]})).json()["error"]
    assert error["param"] == "tools" and "at most 1048576 are allowed" in error["message"]
