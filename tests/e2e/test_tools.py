"""Tools by OpenAI's own client, of a model that writes noise: what is required is what comes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState

from tests.e2e.server_process import ServerProcess

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"enum": ["Zürich", "Rom"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "now"}},
]
NAMED = {"type": "function", "function": {"name": "now"}}


@pytest.fixture(scope="module")
def client(tiny_model: Path) -> Iterator[openai.OpenAI]:
    with ServerProcess(tiny_model, "--trust-request-chat-template") as server:
        server.wait_until_ready()
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            yield client


def body(**fields: Any) -> dict[str, Any]:
    """A request whose prompt leaves room for the answer: the tools are not in it, only in the grammar."""
    template = {"chat_template": "{{ messages[-1].content }}"}
    messages = [{"role": "user", "content": "What's the weather?"}]
    return {"model": "", "messages": messages, "tools": TOOLS, "extra_body": template, "max_tokens": 300} | fields


def calls_of(choice: Any) -> list[tuple[str, Any]]:
    return [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls]


def check_call(name: str, arguments: Any) -> None:
    if name == "now":
        assert arguments == {}
    else:
        assert name == "weather" and set(arguments) == {"city", "days"}
        assert arguments["city"] in ("Zürich", "Rom") and 1 <= arguments["days"] <= 9


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_what_is_required_is_called_whole_and_streamed(client: openai.OpenAI, choice: Any) -> None:
    fields = body(tool_choice=choice, n=3, seed=5, parallel_tool_calls=False)
    whole = client.chat.completions.create(**fields)
    state = ChatCompletionStreamState(input_tools=TOOLS)
    for chunk in client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True}):
        state.handle_chunk(chunk)
    streamed = state.get_final_completion()
    assert whole.usage and streamed.usage and streamed.usage.completion_tokens == whole.usage.completion_tokens
    for one, other in zip(whole.choices, streamed.choices, strict=True):
        assert one.finish_reason == other.finish_reason == ("tool_calls" if choice == "required" else "stop")
        assert one.message.content is None and not other.message.content
        assert len({call.id for shown in (one, other) for call in shown.message.tool_calls or ()}) == 2
        [call] = calls_of(one)
        assert calls_of(other) == [call]
        check_call(*call)
    if choice == NAMED:
        assert calls_of(whole.choices[0]) == [("now", {})]


def test_several_calls(client: openai.OpenAI) -> None:
    bias = {str(2): -5.0}  # the end, which comes a little later
    answer = client.chat.completions.create(**body(tool_choice="required", seed=1, logit_bias=bias, max_tokens=450))
    [choice] = answer.choices
    calls = choice.message.tool_calls
    assert calls is not None and len(calls) > 1
    for call in calls if choice.finish_reason == "tool_calls" else calls[:-1]:
        check_call(call.function.name, json.loads(call.function.arguments))


def test_a_call_that_is_cut_off(client: openai.OpenAI) -> None:
    [choice] = client.chat.completions.create(**body(tool_choice=NAMED, max_tokens=45)).choices
    assert choice.finish_reason == "length"


def test_a_model_that_is_free_to_call_writes_its_noise(client: openai.OpenAI) -> None:
    [choice] = client.chat.completions.create(**body(max_tokens=20, extra_body=body()["extra_body"])).choices
    assert choice.message.tool_calls is None and choice.message.content


def test_what_is_prescribed_or_called(client: openai.OpenAI) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": [1, 2]}}}
    for seed in range(6):
        [choice] = client.chat.completions.create(**body(response_format=form, seed=seed)).choices
        if choice.message.tool_calls:
            for call in calls_of(choice):
                check_call(*call)
        else:
            assert choice.message.content in ("1", "2")


def test_a_schema_that_cannot_be_compiled_is_named(client: openai.OpenAI) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"pattern": "["}}}}}
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**body(tools=[tool], tool_choice="required", stream=stream))
        assert (caught.value.param, caught.value.code) == ("tools", "invalid_grammar")
