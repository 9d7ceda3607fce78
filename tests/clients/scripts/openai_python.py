"""openai for Python: `base_url` is octavo's address with /v1."""

from __future__ import annotations

import openai

import steps
from person import PERSON_QUESTION, Person
from steps import API_KEY, MODEL, URL, step

client = openai.OpenAI(base_url=f"{URL}/v1", api_key=API_KEY)
conversation = [{"role": "user", "content": steps.QUESTION}]
settings = {"model": MODEL, "max_tokens": 64, "temperature": 0}
tool = {"type": "function", "function": {"name": steps.TOOL_NAME, "parameters": steps.TOOL_PARAMETERS}}


def ask(messages: list[dict[str, str]]) -> str:
    """The answer to a conversation."""
    return client.chat.completions.create(messages=messages, **settings).choices[0].message.content


@step
def plain() -> None:
    """A question, and one that follows it."""
    answer = ask(conversation)
    assert ask([*conversation, {"role": "assistant", "content": answer}, {"role": "user", "content": steps.FOLLOW_UP}])


@step
def streamed() -> None:
    """The same text in pieces, and the usage at the end."""
    stream = client.chat.completions.create(
        messages=conversation, stream=True, stream_options={"include_usage": True}, **settings
    )
    *chunks, last = stream
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ask(conversation)
    assert last.choices == [] and last.usage.completion_tokens <= 64


@step
def tools() -> None:
    """The call of a tool, whole and streamed, and an answer that knows the tool's result."""
    request = {"messages": conversation, "tools": [tool], **settings}
    named = {"type": "function", "function": {"name": steps.TOOL_NAME}}
    message = client.chat.completions.create(tool_choice=named, **request).choices[0].message
    [call] = message.tool_calls
    steps.check_call(call.function.name, call.function.arguments)
    with client.chat.completions.stream(tool_choice="required", parallel_tool_calls=False, **request) as stream:
        [streamed_call] = stream.get_final_completion().choices[0].message.tool_calls
    steps.check_call(streamed_call.function.name, streamed_call.function.arguments)
    assert ask([*conversation, message, {"role": "tool", "tool_call_id": call.id, "content": steps.TOOL_RESULT}])


@step
def structured() -> None:
    """An instance of a class."""
    messages = [{"role": "user", "content": PERSON_QUESTION}]
    completion = client.chat.completions.parse(messages=messages, response_format=Person, **settings)
    assert isinstance(completion.choices[0].message.parsed, Person)


@step
def responses() -> None:
    """A question and one that follows it, streamed, with a tool, as an instance of a class."""
    request = {"model": MODEL, "input": steps.QUESTION, "max_output_tokens": 64, "temperature": 0}
    response = client.responses.create(**request)
    follow_up = request | {"input": steps.FOLLOW_UP, "previous_response_id": response.id}
    assert client.responses.create(**follow_up).output_text
    with client.responses.stream(**request) as stream:
        pieces = [event.delta for event in stream if event.type == "response.output_text.delta"]
    assert "".join(pieces) == response.output_text
    flat_tool = {"type": "function", "name": steps.TOOL_NAME, "parameters": steps.TOOL_PARAMETERS}
    called = client.responses.create(tools=[flat_tool], tool_choice="required", parallel_tool_calls=False, **request)
    [call] = called.output
    steps.check_call(call.name, call.arguments)
    parsed = client.responses.parse(text_format=Person, **request | {"input": PERSON_QUESTION}).output_parsed
    assert isinstance(parsed, Person)


@step
def embeddings() -> None:
    """Refused: the model generates text."""
    error = steps.check_raises(openai.APIStatusError, lambda: client.embeddings.create(model=MODEL, input="text"))
    assert error.status_code in {400, 404} and error.code, error.body


@step
def errors() -> None:
    """An unknown model, and a prompt that is too long, whole and streamed."""
    create = client.chat.completions.create
    error = steps.check_raises(openai.NotFoundError, lambda: create(model="unknown", messages=conversation))
    assert error.code == "model_not_found" and error.request_id, error.body
    too_long = [{"role": "user", "content": steps.TOO_LONG}]
    for stream in (False, True):
        error = steps.check_raises(
            openai.BadRequestError, lambda stream=stream: create(messages=too_long, stream=stream, **settings)
        )
        assert error.code == "context_length_exceeded", error.body


if __name__ == "__main__":
    steps.run_steps()
