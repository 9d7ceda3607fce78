"""POST /v1/completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import UnsetType
from starlette.requests import Request
from starlette.responses import Response

from octavo.core.sampling_params import SamplingParams
from octavo.engine.input_processor import Prompt
from octavo.engine.wire import Ready
from octavo.server.counted_stream import CountedStream
from octavo.server.errors import invalid
from octavo.server.json_response import json_response
from octavo.server.openai.answer_head import AnswerHead, check_stream_options
from octavo.server.openai.completion_protocol import Completion, CompletionChoice, CompletionRequest
from octavo.server.openai.completion_writer import CompletionWriter
from octavo.server.parameters import sampling_params
from octavo.server.serving import serving_of
from octavo.server.sse import EventStream
from octavo.server.terms import terms_of
from octavo.server.usage import Usage

if TYPE_CHECKING:
    from octavo.engine.tokenizer import Tokenizer

DEFAULT_MAX_TOKENS = 16
MAX_PROMPTS = 256
MAX_CHOICES = 1024  # of all prompts together


async def create_completion(request: Request, body: CompletionRequest) -> Response | EventStream:
    """Continue one prompt or several, each by n alternatives."""
    serving = serving_of(request)
    model = serving.model_name(body.model)
    engine = serving.engine
    check_stream_options(body)
    is_empty = body.echo and body.max_tokens == 0  # how evaluations ask for the log-probabilities of a prompt alone
    params = _sampling_params(body, engine.ready, is_empty=is_empty)
    prompts = _prompts(body)
    if len(prompts) * params.n > MAX_CHOICES:
        raise invalid(
            "n", f"{len(prompts)} prompts with n = {params.n} each; at most {MAX_CHOICES} choices are allowed"
        )
    stream = await engine.submit(prompts, params, terms_of(request, body))
    head = AnswerHead("cmpl", model, body)
    answer = CompletionAnswer(head, CountedStream(stream, params.n, is_empty=is_empty), body, engine.tokenizer)
    if body.stream:
        return EventStream(answer.chunks(), stream.close)
    return json_response(await answer.whole())


class CompletionAnswer:
    """An answer in the completions form."""

    def __init__(self, head: AnswerHead, stream: CountedStream, body: CompletionRequest, tokenizer: Tokenizer) -> None:
        self._head = head
        self._stream = stream
        self._body = body
        self._tokenizer = tokenizer
        self._writer_by_index: dict[int, CompletionWriter] = {}

    async def whole(self) -> Completion:
        """The answer in one piece. Leaves nothing running if cancelled."""
        try:
            choices = [choice async for choice in self._choices()]
        finally:
            self._stream.close()
        return self._completion(sorted(choices, key=lambda choice: choice.index), self._stream.usage)

    async def chunks(self) -> AsyncGenerator[Completion, None]:
        """The answer in pieces, those of different choices in any order."""
        async for choice in self._choices():
            if choice.text or choice.logprobs or choice.token_ids or choice.finish_reason is not None:
                yield self._completion([choice], self._head.chunk_usage(self._stream.usage))
        if self._head.has_usage_chunk:
            yield self._completion([], self._stream.usage)

    async def _choices(self) -> AsyncGenerator[CompletionChoice, None]:
        async for output in self._stream.outputs():
            for choice in output.outputs:
                index = self._stream.index_of(output, choice)
                if index not in self._writer_by_index:
                    self._writer_by_index[index] = CompletionWriter(index, self._body, self._tokenizer)
                yield self._writer_by_index[index].write(output, choice)

    def _completion(self, choices: list[CompletionChoice], usage: Usage | UnsetType | None) -> Completion:
        return Completion(self._head.id, self._head.created, self._head.model, choices, usage)


def _sampling_params(body: CompletionRequest, ready: Ready, *, is_empty: bool) -> SamplingParams:
    """The parameters; the prompt's log-probabilities are wanted for an echo that shows some, too."""
    max_tokens = DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens
    params = sampling_params(body, ready, max_tokens=1 if is_empty else max_tokens, logprobs=body.logprobs)
    if body.echo and body.logprobs is not None and body.prompt_logprobs is None:
        return replace(params, prompt_logprobs=body.logprobs)
    return params


def _prompts(body: CompletionRequest) -> list[Prompt]:
    """The prompts in `prompt`, which is one of: a text, texts, token ids, lists of token ids."""
    prompt = body.prompt
    if not prompt and not isinstance(prompt, str):
        raise invalid("prompt", "prompt is empty; send a text, a list of texts, token ids or a list of token ids")
    kinds = {str} if isinstance(prompt, str) else {type(item) for item in prompt}
    if kinds == {int}:
        return [prompt]
    if kinds != {str} and kinds != {list}:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise invalid("prompt", f"prompt is a list of {names}; it must hold only texts, only ids or only lists of ids")
    prompts = [prompt] if isinstance(prompt, str) else prompt
    if len(prompts) > MAX_PROMPTS:
        raise invalid("prompt", f"prompt holds {len(prompts)} prompts; at most {MAX_PROMPTS} are allowed in a request")
    if kinds == {list}:
        return list(prompts)
    return [{"prompt": text, "add_special_tokens": body.add_special_tokens} for text in prompts]
