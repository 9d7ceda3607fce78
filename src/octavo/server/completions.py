"""POST /v1/completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UnsetType
from starlette.requests import Request
from starlette.responses import Response

from octavo.engine.input_processor import Prompt
from octavo.engine.outputs import CompletionOutput
from octavo.server.answer import AnswerHead, check_stream_options, json_response
from octavo.server.api_keys import tenant_salt
from octavo.server.completion_protocol import Completion, CompletionChoice, CompletionRequest
from octavo.server.counted_stream import CountedStream
from octavo.server.errors import invalid
from octavo.server.logprobs import CompletionLogprobsWriter
from octavo.server.openai import Usage
from octavo.server.parameters import sampling_params
from octavo.server.serving import serving_of
from octavo.server.sse import EventStream

if TYPE_CHECKING:
    from octavo.engine.tokenizer import Tokenizer

DEFAULT_MAX_TOKENS = 16
MAX_PROMPTS = 256


async def create_completion(request: Request, body: CompletionRequest) -> Response | EventStream:
    """Continue one prompt or several, each by n alternatives."""
    serving = serving_of(request)
    model = serving.model_name(body.model)
    engine = serving.engine
    check_stream_options(body)
    if body.echo and body.logprobs is not None:
        raise invalid("echo", "echo with logprobs is not supported; leave one of them out", "unsupported_parameter")
    params = sampling_params(
        body,
        max_tokens=DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens,
        logprobs=body.logprobs,
        max_model_len=engine.ready.limits.max_model_len,
    )
    prompts = _prompts(body.prompt)
    stream = await engine.submit(
        prompts, params, priority=body.priority, cache_salt=tenant_salt(request, body.cache_salt)
    )
    echoes = [_text(prompt, engine.tokenizer) if body.echo else "" for prompt in prompts]
    head = AnswerHead("cmpl", model, body)
    answer = CompletionAnswer(head, CountedStream(stream, params.n), engine.tokenizer, echoes)
    if body.stream:
        return EventStream(answer.chunks(), stream.close)
    return json_response(await answer.whole())


class CompletionAnswer:
    """An answer in the completions form. `echoes` go before the text of the choices, one for each prompt."""

    def __init__(self, head: AnswerHead, stream: CountedStream, tokenizer: Tokenizer, echoes: Sequence[str]) -> None:
        self._head = head
        self._stream = stream
        self._echo_by_index = [echo for echo in echoes for _ in range(stream.num_choices)]
        self._logprobs_by_index = [CompletionLogprobsWriter(tokenizer) for _ in self._echo_by_index]

    async def whole(self) -> Completion:
        """The answer in one piece."""
        choices = [
            self._choice(index, choice, self._echo_by_index[index])
            for index, choice in await self._stream.final_choices()
        ]
        return self._completion(choices, self._stream.usage)

    async def chunks(self) -> AsyncGenerator[Completion, None]:
        """The answer in pieces, those of different choices in any order."""
        for index, echo in enumerate(self._echo_by_index):
            if echo:
                yield self._chunk(CompletionChoice(index, echo))
        async for output in self._stream.outputs():
            for choice in output.outputs:
                if choice.text or choice.logprobs or choice.finish_reason is not None:
                    yield self._chunk(self._choice(self._stream.index_of(output, choice), choice))
        if self._head.has_usage_chunk:
            yield self._completion([], self._stream.usage)

    def _chunk(self, choice: CompletionChoice) -> Completion:
        return self._completion([choice], self._head.chunk_usage(self._stream.usage))

    def _completion(self, choices: list[CompletionChoice], usage: Usage | UnsetType | None) -> Completion:
        return Completion(self._head.id, self._head.created, self._head.model, choices, usage)

    def _choice(self, index: int, choice: CompletionOutput, echo: str = "") -> CompletionChoice:
        logprobs = self._logprobs_by_index[index].write(choice)
        return CompletionChoice(index, echo + choice.text, logprobs, choice.finish_reason, choice.stop_reason)


def _prompts(prompt: str | list[Any]) -> list[Prompt]:
    """The prompts in `prompt`, which is one of: a text, texts, token ids, lists of token ids."""
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise invalid("prompt", "prompt is empty; send a text, a list of texts, token ids or a list of token ids")
    kinds = {type(item) for item in prompt}
    if kinds == {int}:
        return [prompt]
    if kinds != {str} and kinds != {list}:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise invalid("prompt", f"prompt is a list of {names}; it must hold only texts, only ids or only lists of ids")
    if len(prompt) > MAX_PROMPTS:
        raise invalid("prompt", f"prompt holds {len(prompt)} prompts; at most {MAX_PROMPTS} are allowed in a request")
    return list(prompt)


def _text(prompt: Any, tokenizer: Tokenizer) -> str:
    return prompt if isinstance(prompt, str) else tokenizer.decode(prompt, skip_special_tokens=False)
