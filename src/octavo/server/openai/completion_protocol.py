"""The schemas of POST /v1/completions."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from octavo.server.generation_fields import GenerationFields
from octavo.server.openai.prompt_logprob import PromptLogprobs
from octavo.server.usage import Usage


class CompletionRequest(GenerationFields, frozen=True, kw_only=True):
    """What the client sends."""

    prompt: str | list[Any]  # a text, texts, token ids, or lists of token ids
    logprobs: int | None = None
    echo: bool = False
    add_special_tokens: bool = True


class CompletionLogprobs(msgspec.Struct, frozen=True):
    """One entry a token in each list. An echoed prompt's first token has no log-probability."""

    text_offset: list[int]  # in characters
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class CompletionChoice(msgspec.Struct, frozen=True):
    """A continuation, or what is new in it. Index: prompt number x n + choice number."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | UnsetType = UNSET  # these fields are there for those who asked for them;
    prompt_token_ids: list[int] | UnsetType = UNSET  # in a stream the prompt's come with the first chunk of a choice
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class Completion(msgspec.Struct, frozen=True, tag_field="object", tag="text_completion"):
    """The whole answer, and as well one event of a stream.

    In a stream, `usage` is null on all events but the last when it was asked for, else absent.
    """

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET
