"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from msgspec import UNSET
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from octavo.core.sampling_params import SamplingParams
from octavo.engine.outputs import Logprob
from octavo.engine.wire import Ready
from octavo.server.answer import AnswerHead, check_stream_options, json_response
from octavo.server.api_keys import tenant_salt
from octavo.server.chat_messages import template_messages, template_variables
from octavo.server.chat_protocol import (
    AnswerMessage,
    ChatChoice,
    ChatChunkChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionRequest,
    ChatLogprobs,
    Delta,
)
from octavo.server.errors import invalid
from octavo.server.logprobs import chat_logprobs, prompt_logprobs
from octavo.server.parameters import sampling_params
from octavo.server.serving import serving_of
from octavo.server.sse import EventStream
from octavo.server.turn import Turn, TurnRequest, open_turn
from octavo.server.turn_events import NewTokens, TextDelta, TurnEnd

if TYPE_CHECKING:
    from octavo.engine.tokenizer import Tokenizer


async def create_chat_completion(request: Request, body: ChatCompletionRequest) -> Response | EventStream:
    """Continue a conversation by one turn, or by n alternatives of it."""
    serving = serving_of(request)
    check_stream_options(body)
    model = serving.model_name(body.model)
    engine = serving.engine
    turn = await open_turn(
        serving,
        TurnRequest(
            messages=template_messages(body.messages),
            params=_sampling_params(body, engine.ready),
            add_generation_prompt=body.add_generation_prompt,
            add_special_tokens=body.add_special_tokens,
            template_variables=template_variables(body.chat_template_kwargs),
            priority=body.priority,
            cache_salt=tenant_salt(request, body.cache_salt),
        ),
    )
    answer = ChatAnswer(AnswerHead("chatcmpl", model, body), turn, engine.tokenizer, body)
    if body.stream:
        return EventStream(answer.chunks(), turn.close)
    return json_response(await answer.whole())


class ChatAnswer:
    """An answer in the chat form."""

    def __init__(self, head: AnswerHead, turn: Turn, tokenizer: Tokenizer, body: ChatCompletionRequest) -> None:
        self._head = head
        self._turn = turn
        self._tokenizer = tokenizer
        self._body = body

    async def whole(self) -> ChatCompletion:
        """The answer in one piece."""
        head = self._head
        choices = [
            ChatChoice(
                index=choice.index,
                message=AnswerMessage(choice.text),
                logprobs=self._logprobs(choice.token_ids, choice.logprobs),
                finish_reason=choice.finish_reason,
                stop_reason=choice.stop_reason,
                token_ids=choice.token_ids if self._body.return_token_ids else UNSET,
            )
            for choice in await self._turn.choices()
        ]
        scores = self._turn.prompt_logprobs
        return ChatCompletion(
            head.id,
            head.created,
            head.model,
            choices,
            self._turn.usage,
            prompt_token_ids=self._turn.prompt_token_ids if self._body.return_token_ids else UNSET,
            prompt_logprobs=UNSET if scores is None else prompt_logprobs(scores),
        )

    async def chunks(self) -> AsyncGenerator[ChatCompletionChunk, None]:
        """The answer in pieces: a role for each choice, in order; then text; for each choice one finish_reason."""
        has_token_ids = self._body.return_token_ids
        for index in range(self._turn.num_choices):
            chunk = self._chunk(index, Delta(role="assistant", content=""))
            is_first = index == 0 and has_token_ids
            yield replace(chunk, prompt_token_ids=self._turn.prompt_token_ids) if is_first else chunk
        async for event in self._turn.events():
            match event:
                case NewTokens(index, token_ids, logprobs):
                    if logprobs is not None or has_token_ids:
                        shown = {"token_ids": token_ids} if has_token_ids else {}
                        written = self._logprobs(token_ids, logprobs)
                        yield self._chunk(index, Delta(content=""), logprobs=written, **shown)
                case TextDelta(index, text):
                    yield self._chunk(index, Delta(content=text))
                case TurnEnd(index, finish_reason, stop_reason):
                    yield self._chunk(index, Delta(), finish_reason=finish_reason, stop_reason=stop_reason)
        if self._head.has_usage_chunk:
            yield ChatCompletionChunk(self._head.id, self._head.created, self._head.model, [], self._turn.usage)

    def _chunk(self, index: int, delta: Delta, **rest: Any) -> ChatCompletionChunk:
        head = self._head
        choice = ChatChunkChoice(index, delta, **rest)
        return ChatCompletionChunk(head.id, head.created, head.model, [choice], head.chunk_usage(self._turn.usage))

    def _logprobs(self, token_ids: list[int], logprobs: list[dict[int, Logprob]] | None) -> ChatLogprobs | None:
        num_top = self._body.top_logprobs or 0
        return chat_logprobs(
            token_ids,
            logprobs,
            self._tokenizer.vocab_size if num_top == -1 else num_top,
            self._tokenizer,
            shows_ids=self._body.return_tokens_as_token_ids,
        )


def _sampling_params(body: ChatCompletionRequest, ready: Ready) -> SamplingParams:
    num_top, limit = body.top_logprobs, ready.config.max_logprobs
    if num_top is not None and not body.logprobs:
        raise invalid("top_logprobs", "top_logprobs needs logprobs: true")
    if num_top is not None and limit != -1 and not 0 <= num_top <= limit:
        raise invalid("top_logprobs", f"top_logprobs is {num_top}; it must be at least 0 and at most {limit}")
    return sampling_params(
        body,
        ready,
        max_tokens=body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
        logprobs=(num_top or 0) if body.logprobs else None,
    )
