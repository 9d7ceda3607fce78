"""anthropic for Python: `base_url` is octavo's address without /v1."""

from __future__ import annotations

import anthropic

import steps
from steps import API_KEY, MODEL, URL, step

client = anthropic.Anthropic(base_url=URL, api_key=API_KEY)
conversation = [{"role": "user", "content": steps.QUESTION}]
settings = {"model": MODEL, "max_tokens": 64, "extra_body": {"temperature": 0}}  # no longer an argument of its own
tool = {"name": steps.TOOL_NAME, "description": "The weather in a city.", "input_schema": steps.TOOL_PARAMETERS}


def ask(messages: list[dict[str, object]]) -> str:
    """The answer to a conversation."""
    [block] = client.messages.create(messages=messages, system="Be brief.", **settings).content
    return block.text


@step
def plain() -> None:
    """A question, and one that follows it."""
    answer = ask(conversation)
    assert ask([*conversation, {"role": "assistant", "content": answer}, {"role": "user", "content": steps.FOLLOW_UP}])


@step
def streamed() -> None:
    """The same text in pieces, and the usage at the end."""
    with client.messages.stream(messages=conversation, system="Be brief.", **settings) as stream:
        pieces = list(stream.text_stream)
        message = stream.get_final_message()
    assert "".join(pieces) == message.content[0].text == ask(conversation)
    assert message.usage.input_tokens and message.usage.output_tokens <= 64


@step
def tools() -> None:
    """The call of a tool, whole and streamed, and an answer that knows the tool's result."""
    named = {"type": "tool", "name": steps.TOOL_NAME}
    message = client.messages.create(messages=conversation, tools=[tool], tool_choice=named, **settings)
    [call] = [block for block in message.content if block.type == "tool_use"]
    steps.check_call(call.name, call.input)
    assert message.stop_reason == "tool_use", message.stop_reason
    required = {"type": "any", "disable_parallel_tool_use": True}
    with client.messages.stream(messages=conversation, tools=[tool], tool_choice=required, **settings) as stream:
        [streamed_call] = [block for block in stream.get_final_message().content if block.type == "tool_use"]
    steps.check_call(streamed_call.name, streamed_call.input)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": steps.TOOL_RESULT}
    history = [{"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    assert client.messages.create(messages=[*conversation, *history], tools=[tool], **settings).content


@step
def count_tokens() -> None:
    """As many as a message then takes, from the cache or not."""
    counted = client.messages.count_tokens(model=MODEL, messages=conversation).input_tokens
    usage = client.messages.create(messages=conversation, **settings).usage
    assert counted == usage.input_tokens + usage.cache_read_input_tokens, usage


@step
def errors() -> None:
    """An unknown model, and a prompt that is too long, whole and streamed."""
    unknown = settings | {"model": "unknown"}
    error = steps.check_raises(
        anthropic.NotFoundError, lambda: client.messages.create(messages=conversation, **unknown)
    )
    assert error.body["error"]["type"] == "not_found_error" and error.request_id, error.body
    too_long = [{"role": "user", "content": steps.TOO_LONG}]
    for stream in (False, True):
        error = steps.check_raises(
            anthropic.BadRequestError,
            lambda stream=stream: client.messages.create(messages=too_long, stream=stream, **settings),
        )
        assert error.body["error"]["type"] == "invalid_request_error", error.body


if __name__ == "__main__":
    steps.run_steps()
