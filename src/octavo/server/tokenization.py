"""POST /tokenize and /detokenize, in vLLM's form and in llama.cpp's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from octavo.engine.input_processor import PromptDict
from octavo.server.errors import invalid
from octavo.server.json_response import json_response
from octavo.server.openai.chat import turn_request
from octavo.server.openai.chat_protocol import ChatCompletionRequest, ChatMessage
from octavo.server.serving import Serving, serving_of
from octavo.server.turns.tools import Tool
from octavo.server.turns.turn import render_turn


class TokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the client sends: `prompt` or `messages` as vLLM has it, or `content` as llama.cpp has it."""

    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    tools: list[Tool] = []
    tool_choice: str | dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] = {}
    reasoning_effort: str | None = None
    add_special_tokens: bool | None = None  # unless told: for a prompt, as completions do, and not for messages
    return_token_strs: bool = False
    content: str | None = None
    add_special: bool = False
    with_pieces: bool = False


class Piece(msgspec.Struct, frozen=True):
    """A token and what it stands for: a text, or its bytes where they are none."""

    id: int
    piece: str | list[int]


class Tokens(msgspec.Struct, frozen=True):
    """The ids; as pieces for those who asked. llama.cpp's form has no counts."""

    tokens: Sequence[int | Piece]
    count: int | UnsetType = UNSET
    max_model_len: int | UnsetType = UNSET
    token_strs: list[str] | UnsetType = UNSET  # as the vocabulary writes them


class DetokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the client sends."""

    tokens: list[int]
    model: str | None = None


class DetokenizedText(msgspec.Struct, frozen=True):
    """The text under both names."""

    prompt: str  # vLLM's
    content: str  # llama.cpp's


async def tokenize(request: Request, body: TokenizeRequest) -> Response:
    """The token ids of a text or of a conversation, as the other endpoints find them."""
    serving = serving_of(request)
    serving.model_name(body.model)
    engine, tokenizer = serving.engine, serving.engine.tokenizer
    token_ids = await engine.texts.token_ids(await _prompt(serving, body))
    if body.content is not None and body.with_pieces:
        return json_response(Tokens([_piece(i, tokenizer.token_bytes(i)) for i in token_ids]))
    if body.content is not None:
        return json_response(Tokens(token_ids))
    return json_response(
        Tokens(
            token_ids,
            count=len(token_ids),
            max_model_len=engine.ready.limits.max_model_len,
            token_strs=[tokenizer.token(i) for i in token_ids] if body.return_token_strs else UNSET,
        )
    )


async def detokenize(request: Request, body: DetokenizeRequest) -> Response:
    """The text of token ids, special tokens included."""
    serving = serving_of(request)
    serving.model_name(body.model)
    try:
        text = await serving.engine.texts.decode(body.tokens)
    except ValueError as error:
        raise invalid("tokens", str(error)) from None
    return json_response(DetokenizedText(text, text))


async def _prompt(serving: Serving, body: TokenizeRequest) -> PromptDict:
    given = [name for name in ("prompt", "messages", "content") if getattr(body, name) is not None]
    if len(given) != 1:
        raise invalid(
            (given or ["prompt"])[-1], f"the body holds {given or 'none'} of prompt, messages and content; send one"
        )
    if body.messages is not None:
        chat = ChatCompletionRequest(
            messages=body.messages,
            tools=body.tools,
            tool_choice=body.tool_choice,
            add_generation_prompt=body.add_generation_prompt,
            continue_final_message=body.continue_final_message,
            add_special_tokens=bool(body.add_special_tokens),
            chat_template=body.chat_template,
            chat_template_kwargs=body.chat_template_kwargs,
            reasoning_effort=body.reasoning_effort,
        )
        return await render_turn(serving, turn_request(chat, serving))
    if body.content is not None:
        return {"prompt": body.content, "add_special_tokens": body.add_special}
    return {"prompt": body.prompt or "", "add_special_tokens": body.add_special_tokens is not False}


def _piece(token_id: int, data: bytes) -> Piece:
    try:
        return Piece(token_id, data.decode())
    except UnicodeDecodeError:
        return Piece(token_id, list(data))
