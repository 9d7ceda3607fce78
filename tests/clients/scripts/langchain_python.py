"""langchain-openai: `ChatOpenAI(base_url=...)` is octavo's address with /v1."""

from __future__ import annotations

import openai
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

import steps
from person import PERSON_QUESTION, Person
from steps import API_KEY, MODEL, URL, step

place = {"model": MODEL, "base_url": f"{URL}/v1", "api_key": API_KEY}
settings = {"max_tokens": 64, "temperature": 0}
model = ChatOpenAI(**place, **settings)
conversation = [HumanMessage(steps.QUESTION)]
tool = {"type": "function", "function": {"name": steps.TOOL_NAME, "parameters": steps.TOOL_PARAMETERS}}


@step
def plain() -> None:
    """A question, and one that follows it."""
    answer = model.invoke(conversation)
    assert answer.usage_metadata["output_tokens"] <= 64
    assert model.invoke([*conversation, answer, HumanMessage(steps.FOLLOW_UP)]).content


@step
def streamed() -> None:
    """The same text in pieces, and the usage at the end."""
    chunks = list(model.stream(conversation, stream_usage=True))
    assert "".join(chunk.content for chunk in chunks) == model.invoke(conversation).content
    assert sum(chunk.usage_metadata["output_tokens"] for chunk in chunks if chunk.usage_metadata) <= 64


@step
def tools() -> None:
    """The call of a tool, whole and streamed, and an answer that knows the tool's result."""
    message = model.bind_tools([tool], tool_choice=steps.TOOL_NAME).invoke(conversation)
    [call] = message.tool_calls
    steps.check_call(call["name"], call["args"])
    required = model.bind_tools([tool], tool_choice="required", parallel_tool_calls=False)
    first, *others = required.stream(conversation)
    [streamed_call] = sum(others, first).tool_calls
    steps.check_call(streamed_call["name"], streamed_call["args"])
    result = ToolMessage(steps.TOOL_RESULT, tool_call_id=call["id"])
    assert model.invoke([*conversation, message, result]).content


@step
def structured() -> None:
    """An instance of a class: by a schema, and by a tool."""
    for method in ("json_schema", "function_calling"):
        person = model.with_structured_output(Person, method=method).invoke(PERSON_QUESTION)
        assert isinstance(person, Person), method


@step
def responses() -> None:
    """A question, whole and streamed, and one that follows it."""
    responding = ChatOpenAI(**place, **settings, use_responses_api=True)
    answer = responding.invoke(conversation)
    assert "".join(chunk.text for chunk in responding.stream(conversation)) == answer.text
    assert responding.invoke([*conversation, answer, HumanMessage(steps.FOLLOW_UP)]).text


@step
def embeddings() -> None:
    """Refused: the model generates text."""
    embed = OpenAIEmbeddings(**place, check_embedding_ctx_length=False).embed_query
    error = steps.check_raises(openai.APIStatusError, lambda: embed("text"))
    assert error.status_code in {400, 404} and error.code, error.body


@step
def errors() -> None:
    """An unknown model, and a prompt that is too long, whole and streamed."""
    unknown = ChatOpenAI(**place | {"model": "unknown"})
    steps.check_raises(openai.NotFoundError, lambda: unknown.invoke(conversation))
    for ask in (model.invoke, lambda text: list(model.stream(text))):
        error = steps.check_raises(openai.BadRequestError, lambda ask=ask: ask(steps.TOO_LONG))
        assert error.code == "context_length_exceeded", error.body


if __name__ == "__main__":
    steps.run_steps()
