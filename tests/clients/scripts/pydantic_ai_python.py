"""pydantic-ai: `OpenAIProvider(base_url=...)` is octavo's address with /v1, `AnthropicProvider` takes it without."""

from __future__ import annotations

from typing import Literal

from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.embeddings import Embedder
from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

import steps
from person import PERSON_QUESTION, Person
from steps import API_KEY, MODEL, URL, step

provider = OpenAIProvider(base_url=f"{URL}/v1", api_key=API_KEY)
model = OpenAIChatModel(MODEL, provider=provider)
settings = {"max_tokens": 64, "temperature": 0}
agent = Agent(model, model_settings=settings)


@step
def plain() -> None:
    """A question, and one that follows it."""
    answer = agent.run_sync(steps.QUESTION)
    assert answer.usage.output_tokens <= 64
    assert agent.run_sync(steps.FOLLOW_UP, message_history=answer.all_messages()).output


@step
def streamed() -> None:
    """The same text in pieces."""
    pieces = list(agent.run_stream_sync(steps.QUESTION).stream_text(delta=True))
    assert "".join(pieces) == agent.run_sync(steps.QUESTION).output


@step
def tools() -> None:
    """An answer that is the call of a tool."""

    def get_weather(city: Literal["Paris", "Rome"]) -> str:
        """The weather in a city."""
        return f"{city}: {steps.TOOL_RESULT}"

    output = agent.run_sync(steps.QUESTION, output_type=get_weather).output
    assert output.endswith(steps.TOOL_RESULT), output


@step
def structured() -> None:
    """An instance of a class: by a schema, and by a tool."""
    for output_type in (NativeOutput(Person), ToolOutput(Person)):
        assert isinstance(agent.run_sync(PERSON_QUESTION, output_type=output_type).output, Person)


@step
def responses() -> None:
    """A question, whole and streamed, and one that follows it."""
    responding = Agent(OpenAIResponsesModel(MODEL, provider=provider), model_settings=settings)
    answer = responding.run_sync(steps.QUESTION)
    pieces = list(responding.run_stream_sync(steps.QUESTION).stream_text(delta=True))
    assert "".join(pieces) == answer.output
    assert responding.run_sync(steps.FOLLOW_UP, message_history=answer.all_messages()).output


@step
def messages() -> None:
    """A question by Anthropic's API, whole and streamed."""
    model = AnthropicModel(MODEL, provider=AnthropicProvider(base_url=URL, api_key=API_KEY))
    answering = Agent(model, model_settings=settings)
    pieces = list(answering.run_stream_sync(steps.QUESTION).stream_text(delta=True))
    assert "".join(pieces) == answering.run_sync(steps.QUESTION).output


@step
def embeddings() -> None:
    """Refused: the model generates text."""
    embedder = Embedder(OpenAIEmbeddingModel(MODEL, provider=provider))
    error = steps.check_raises(ModelHTTPError, lambda: embedder.embed_query_sync("text"))
    assert error.status_code in {400, 404}, error


@step
def errors() -> None:
    """An unknown model, and a prompt that is too long."""
    unknown = Agent(OpenAIChatModel("unknown", provider=provider))
    error = steps.check_raises(ModelHTTPError, lambda: unknown.run_sync(steps.QUESTION))
    assert error.status_code == 404 and error.body["code"] == "model_not_found", error
    error = steps.check_raises(ModelHTTPError, lambda: agent.run_sync(steps.TOO_LONG))
    assert error.status_code == 400 and error.body["code"] == "context_length_exceeded", error


if __name__ == "__main__":
    steps.run_steps()
