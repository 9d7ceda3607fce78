"""litellm: `openai/NAME` with `api_base` is octavo's address with /v1; `anthropic/NAME` takes it without."""

from __future__ import annotations

import litellm

import steps
from person import PERSON_QUESTION, Person
from steps import API_KEY, MODEL, URL, step

conversation = [{"role": "user", "content": steps.QUESTION}]
place = {"model": f"openai/{MODEL}", "api_base": f"{URL}/v1", "api_key": API_KEY}
settings = {**place, "max_tokens": 64, "temperature": 0}
tool = {"type": "function", "function": {"name": steps.TOOL_NAME, "parameters": steps.TOOL_PARAMETERS}}


def ask(messages: list[dict[str, str]]) -> str:
    """The answer to a conversation."""
    return litellm.completion(messages=messages, **settings).choices[0].message.content


@step
def plain() -> None:
    """A question, and one that follows it."""
    answer = ask(conversation)
    assert ask([*conversation, {"role": "assistant", "content": answer}, {"role": "user", "content": steps.FOLLOW_UP}])


@step
def streamed() -> None:
    """The same text in pieces, and the usage at the end."""
    stream = litellm.completion(messages=conversation, stream=True, stream_options={"include_usage": True}, **settings)
    completion = litellm.stream_chunk_builder(list(stream), messages=conversation)
    assert completion.choices[0].message.content == ask(conversation)
    assert completion.usage.completion_tokens <= 64


@step
def tools() -> None:
    """The call of a tool, whole and streamed, and an answer that knows the tool's result."""
    named = {"type": "function", "function": {"name": steps.TOOL_NAME}}
    request = {"messages": conversation, "tools": [tool], **settings}
    message = litellm.completion(tool_choice=named, **request).choices[0].message
    [call] = message.tool_calls
    steps.check_call(call.function.name, call.function.arguments)
    required = {"tool_choice": "required", "parallel_tool_calls": False}
    chunks = list(litellm.completion(stream=True, **required, **request))
    [streamed_call] = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls
    steps.check_call(streamed_call.function.name, streamed_call.function.arguments)
    assert ask([*conversation, message, {"role": "tool", "tool_call_id": call.id, "content": steps.TOOL_RESULT}])


@step
def structured() -> None:
    """JSON of a class."""
    messages = [{"role": "user", "content": PERSON_QUESTION}]
    completion = litellm.completion(messages=messages, response_format=Person, **settings)
    Person.model_validate_json(completion.choices[0].message.content)


@step
def responses() -> None:
    """A question, whole and streamed."""
    request = {"input": steps.QUESTION, **place, "max_output_tokens": 64, "temperature": 0}
    text = litellm.responses(**request).output[0].content[0].text
    events = litellm.responses(stream=True, **request)
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == text


@step
def messages() -> None:
    """A question by Anthropic's API."""
    model = {"model": f"anthropic/{MODEL}", "api_base": URL, "api_key": API_KEY}
    assert litellm.completion(messages=conversation, max_tokens=64, **model).choices[0].message.content


@step
def embeddings() -> None:
    """Refused: the model generates text."""
    refusals = (litellm.NotFoundError, litellm.BadRequestError)
    steps.check_raises(refusals, lambda: litellm.embedding(input="text", **place))


@step
def errors() -> None:
    """An unknown model, and a prompt that is too long."""
    unknown = settings | {"model": "openai/unknown"}
    steps.check_raises(litellm.NotFoundError, lambda: litellm.completion(messages=conversation, **unknown))
    steps.check_raises(litellm.ContextWindowExceededError, lambda: ask([{"role": "user", "content": steps.TOO_LONG}]))


if __name__ == "__main__":
    steps.run_steps()
