"""The schemas of POST /v1/chat/completions."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from octavo.server.openai import GenerationFields, PromptLogprobs, Usage


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
    add_generation_prompt: bool = True
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


class AnswerMessage(msgspec.Struct, frozen=True):
    """The generated turn."""

    content: str
    role: str = "assistant"
    refusal: None = None


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


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is new in a choice. `role` comes once: the client appends strings to what it has."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET


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
