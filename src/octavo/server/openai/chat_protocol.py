"""The schemas of POST /v1/chat/completions."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from octavo.server.generation_fields import GenerationFields
from octavo.server.openai.prompt_logprob import PromptLogprobs
from octavo.server.turns.tools import Tool
from octavo.server.usage import Usage


class ContentPart(msgspec.Struct, frozen=True):
    """A piece of a message. Only text is served."""

    type: str
    text: str = ""


class ChatMessage(msgspec.Struct, frozen=True):
    """One turn of the conversation so far."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class ChatCompletionRequest(GenerationFields, frozen=True, kw_only=True):
    """What the client sends."""

    messages: list[ChatMessage]
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    tools: list[Tool] = msgspec.field(default_factory=list)
    tool_choice: str | dict[str, Any] | None = None  # none, auto, required, or which function
    parallel_tool_calls: bool = True
    include_reasoning: bool = True
    reasoning_effort: str | None = None  # for templates that read it; none: no reasoning
    add_generation_prompt: bool | None = None  # unless told, true but for continue_final_message
    continue_final_message: bool = False
    chat_template: str | None = None
    add_special_tokens: bool = False  # writing them is the template's business
    chat_template_kwargs: dict[str, Any] = msgspec.field(default_factory=dict)


class TopLogprob(msgspec.Struct, frozen=True):
    """A token that could have stood here."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(msgspec.Struct, frozen=True):
    """The token that stands here, and what could have stood here."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True):
    """One entry a token."""

    content: list[TokenLogprob]
    refusal: None = None


class FunctionCall(msgspec.Struct, frozen=True):
    """A function and the JSON of its arguments."""

    name: str
    arguments: str


class ChatToolCall(msgspec.Struct, frozen=True):
    """A call that the client is asked to make."""

    id: str
    function: FunctionCall
    type: str = "function"


class AnswerMessage(msgspec.Struct, frozen=True):
    """The generated turn. The reasoning goes by two names, since clients know the one or the other."""

    content: str | None
    role: str = "assistant"
    refusal: None = None
    tool_calls: list[ChatToolCall] | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET


class ChatChoice(msgspec.Struct, frozen=True):
    """One of the n answers."""

    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletion(msgspec.Struct, frozen=True, tag_field="object", tag="chat.completion"):
    """The whole answer."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class FunctionDelta(msgspec.Struct, frozen=True):
    """What is new in a call."""

    arguments: str
    name: str | UnsetType = UNSET


class ToolCallDelta(msgspec.Struct, frozen=True):
    """A call's part of a delta. Id, type and name come once."""

    index: int
    function: FunctionDelta
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is new in a choice. `role` comes once: the client appends strings to what it has."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, frozen=True):
    """One choice's part of a chunk."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletionChunk(msgspec.Struct, frozen=True, tag_field="object", tag="chat.completion.chunk"):
    """One event of a stream. `usage` is null on all but the last when it was asked for, else absent."""

    id: str
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET  # on the first
