"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.core.sampling_params import SamplingParams
from octavo.engine.generation_stream import GenerationStream
from octavo.engine.outputs import CompletionOutput
from octavo.engine.wire import Ready
from octavo.server.answer import Answer, check_stream_options, json_response
from octavo.server.chat_messages import template_messages
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
from octavo.server.disconnect import finish_or_disconnect
from octavo.server.errors import invalid
from octavo.server.logprobs import chat_logprobs
from octavo.server.parameters import refuse_unsupported, sampling_params
from octavo.server.request_body import convert, read_object
from octavo.server.serving import Serving, serving_of
from octavo.server.sse import EventStream

if TYPE_CHECKING:
    from octavo.engine.tokenizer import Tokenizer

RESERVED_VARIABLES = ("messages", "tools", "add_generation_prompt")


async def create_chat_completion(request: Request) -> Response | EventStream:
    """Continue a conversation by one turn, or by n alternatives of it."""
    serving = serving_of(request)
    serving.engine.check_ready()
    fields = await read_object(request)
    refuse_unsupported(fields, adds_special_tokens=False)  # writing them is the template's business
    body = convert(fields, ChatCompletionRequest)
    return await finish_or_disconnect(request.receive, _answer(serving, body))


async def _answer(serving: Serving, body: ChatCompletionRequest) -> Response | EventStream:
    check_stream_options(body)
    model = serving.model_name(body.model)
    engine = serving.engine
    params = _sampling_params(body, engine.ready)
    prompt = await engine.render_chat(
        template_messages(body.messages),
        add_generation_prompt=body.add_generation_prompt,
        variables=_template_variables(body.chat_template_kwargs),
    )
    stream = await engine.submit([prompt], params, priority=body.priority, cache_salt=body.cache_salt)
    answer = ChatAnswer(model, body, stream, engine.tokenizer)
    if body.stream:
        return EventStream(answer.chunks(), stream.close)
    return json_response(await answer.whole())


class ChatAnswer(Answer):
    """An answer in the chat form."""

    def __init__(self, model: str, body: ChatCompletionRequest, stream: GenerationStream, tokenizer: Tokenizer) -> None:
        super().__init__("chatcmpl", model, body, stream)
        self._num_top_logprobs = body.top_logprobs or 0
        self._tokenizer = tokenizer

    async def whole(self) -> ChatCompletion:
        """The answer in one piece."""
        choices = [
            ChatChoice(
                index=index,
                message=AnswerMessage(choice.text),
                logprobs=self._logprobs(choice),
                finish_reason=choice.finish_reason,
                stop_reason=choice.stop_reason,
            )
            for index, choice in await self.final_choices()
        ]
        return ChatCompletion(self.id, self.created, self.model, choices, self.usage)

    async def chunks(self) -> AsyncGenerator[ChatCompletionChunk, None]:
        """The answer in pieces: a role for each choice, in order; then text; for each choice one finish_reason."""
        for index in range(self.num_choices):
            yield self._chunk(ChatChunkChoice(index, Delta(role="assistant", content="")))
        async for output in self.outputs():
            for choice in output.outputs:
                if choice.text or choice.logprobs:
                    delta = Delta(content=choice.text)
                    yield self._chunk(ChatChunkChoice(choice.index, delta, self._logprobs(choice)))
                if choice.finish_reason is not None:
                    yield self._chunk(
                        ChatChunkChoice(
                            choice.index, Delta(), finish_reason=choice.finish_reason, stop_reason=choice.stop_reason
                        )
                    )
        if self.has_usage_chunk:
            yield ChatCompletionChunk(self.id, self.created, self.model, [], self.usage)

    def _chunk(self, choice: ChatChunkChoice) -> ChatCompletionChunk:
        return ChatCompletionChunk(self.id, self.created, self.model, [choice], self.chunk_usage)

    def _logprobs(self, choice: CompletionOutput) -> ChatLogprobs | None:
        return chat_logprobs(choice, self._num_top_logprobs, self._tokenizer)


def _template_variables(variables: dict[str, Any]) -> dict[str, Any]:
    for name in RESERVED_VARIABLES:
        if name in variables:
            raise invalid("chat_template_kwargs", f"chat_template_kwargs holds {name}, which is a field of the request")
    return variables


def _sampling_params(body: ChatCompletionRequest, ready: Ready) -> SamplingParams:
    num_top, limit = body.top_logprobs, ready.config.max_logprobs
    if num_top is not None and not body.logprobs:
        raise invalid("top_logprobs", "top_logprobs needs logprobs: true")
    if num_top is not None and not 0 <= num_top <= limit:
        raise invalid("top_logprobs", f"top_logprobs is {num_top}; it must be at least 0 and at most {limit}")
    return sampling_params(
        body,
        max_tokens=body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
        logprobs=(num_top or 0) if body.logprobs else None,
        max_model_len=ready.limits.max_model_len,
    )
