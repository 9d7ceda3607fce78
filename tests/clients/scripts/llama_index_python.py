"""llama-index: `OpenAILike(api_base=...)` is octavo's address with /v1."""

from __future__ import annotations

import openai
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike, OpenAILikeResponses

import steps
from person import PERSON_QUESTION, Person
from steps import API_KEY, MODEL, URL, step

place = {"api_base": f"{URL}/v1", "api_key": API_KEY, "max_retries": 0}
settings = {
    "is_chat_model": True,
    "is_function_calling_model": True,
    "should_use_structured_outputs": True,
    "max_tokens": 64,
    "temperature": 0,
}
model = OpenAILike(model=MODEL, **place, **settings)
conversation = [ChatMessage(steps.QUESTION)]


def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"{city}: {steps.TOOL_RESULT}"


@step
def plain() -> None:
    """A question, one that follows it, and a text to go on with."""
    answer = model.chat(conversation).message
    assert model.chat([*conversation, answer, ChatMessage(steps.FOLLOW_UP)]).message.content
    assert OpenAILike(model=MODEL, **place, **settings | {"is_chat_model": False}).complete("Once upon a").text


@step
def streamed() -> None:
    """The same text in pieces."""
    pieces = [response.delta for response in model.stream_chat(conversation)]
    assert "".join(pieces) == model.chat(conversation).message.content


@step
def tools() -> None:
    """The call of a tool, and an answer that knows the tool's result."""
    tool = FunctionTool.from_defaults(get_weather)
    response = model.chat_with_tools([tool], chat_history=conversation, tool_required=True)
    [call] = model.get_tool_calls_from_response(response)
    assert call.tool_name == steps.TOOL_NAME and isinstance(call.tool_kwargs["city"], str)
    result = ChatMessage(tool.call(**call.tool_kwargs).content, role="tool", tool_call_id=call.tool_id)
    assert model.chat([*conversation, response.message, result]).message.content


@step
def structured() -> None:
    """An instance of a class."""
    response = model.as_structured_llm(Person).chat([ChatMessage(PERSON_QUESTION)])
    assert isinstance(response.raw, Person)


@step
def responses() -> None:
    """A question by the other API, whole and streamed."""
    responding = OpenAILikeResponses(model=MODEL, **place, max_output_tokens=64, temperature=0)
    pieces = [response.delta for response in responding.stream_chat(conversation)]
    assert "".join(pieces) == responding.chat(conversation).message.content


@step
def embeddings() -> None:
    """Refused: the model generates text."""
    embedding = OpenAILikeEmbedding(model_name=MODEL, **place)
    error = steps.check_raises(openai.APIStatusError, lambda: embedding.get_text_embedding("text"))
    assert error.status_code in {400, 404} and error.code, error.body


@step
def errors() -> None:
    """An unknown model, and a prompt that is too long, whole and streamed."""
    unknown = OpenAILike(model="unknown", **place, **settings)
    steps.check_raises(openai.NotFoundError, lambda: unknown.chat(conversation))
    for ask in (model.chat, lambda messages: list(model.stream_chat(messages))):
        too_long = [ChatMessage(steps.TOO_LONG)]
        error = steps.check_raises(openai.BadRequestError, lambda ask=ask, too_long=too_long: ask(too_long))
        assert error.code == "context_length_exceeded", error.body


if __name__ == "__main__":
    steps.run_steps()
