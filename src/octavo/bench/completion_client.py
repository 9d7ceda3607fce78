"""CompletionClient: one streamed completion or chat completion, timed."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import Any

import msgspec

from octavo.bench.http_client import HttpError, Server, events
from octavo.bench.outcome import REFUSAL, Outcome
from octavo.bench.prompts import CALIBRATION_TEXTS, TokenLine
from octavo.bench.workload import LoadRequest

PATH_BY_ENDPOINT = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}


class _Text(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Text = msgspec.field(default_factory=_Text)

    @property
    def has_text(self) -> bool:
        return bool(self.text or self.delta.content or self.delta.reasoning_content)


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _PromptDetails | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = msgspec.field(default_factory=list)
    usage: _Usage | None = None
    error: Any = None


_chunk_decoder = msgspec.json.Decoder(_Chunk)


class CompletionClient:
    """Sends requests to one model of one server."""

    def __init__(self, server: Server, model: str, *, endpoint: str, ignore_eos: bool) -> None:
        self._server = server
        self._path = PATH_BY_ENDPOINT[endpoint]
        self._is_chat = endpoint == "chat"
        self._common = {"model": model, "temperature": 0, "ignore_eos": ignore_eos}

    async def token_line(self) -> TokenLine:
        """How the server counts tokens. Raises HttpError, OSError, and ValueError where it does not."""
        first, second = [await self._count_tokens(text) for text in CALIBRATION_TEXTS]
        return TokenLine.through((first, second))

    async def run(self, request: LoadRequest, start_s: float) -> Outcome:
        """Send the request and see it through. Errors become part of the outcome."""
        outcome = Outcome(sent_s=time.perf_counter() - start_s)
        try:
            await self._stream(request, outcome, start_s)
            if not outcome.chunk_s:
                outcome.error = "the answer holds no text"
        except (HttpError, OSError, msgspec.DecodeError) as error:
            outcome.is_refused = isinstance(error, HttpError) and error.is_refusal
            outcome.error = REFUSAL if outcome.is_refused else f"{type(error).__name__}: {error}"
        outcome.ended_s = time.perf_counter() - start_s
        return outcome

    async def _stream(self, request: LoadRequest, outcome: Outcome, start_s: float) -> None:
        body = self._body(request.prompt, request.num_output_tokens)
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        pieces = self._server.request("POST", self._path, msgspec.json.encode(body))
        num_chunks = 0
        async with aclosing(events(pieces)) as stream:
            async for data in stream:
                now_s = time.perf_counter() - start_s
                chunk = _chunk_decoder.decode(data)
                if chunk.error:
                    raise HttpError(f"the stream broke off: {chunk.error}")
                if any(choice.has_text for choice in chunk.choices):
                    outcome.chunk_s.append(now_s)
                    num_chunks += 1
                if chunk.usage is not None:
                    _enter_usage(chunk.usage, outcome)
        outcome.num_output_tokens = outcome.num_output_tokens or num_chunks  # of a server that sends no usage

    async def _count_tokens(self, text: str) -> int:
        answer = await self._server.post_json(self._path, self._body(text, 1))
        return msgspec.convert(answer, _Chunk).usage.prompt_tokens  # type: ignore[union-attr]

    def _body(self, prompt: str, max_tokens: int) -> dict[str, Any]:
        what = {"messages": [{"role": "user", "content": prompt}]} if self._is_chat else {"prompt": prompt}
        return self._common | what | {"max_tokens": max_tokens}


def _enter_usage(usage: _Usage, outcome: Outcome) -> None:
    outcome.num_prompt_tokens = usage.prompt_tokens
    outcome.num_output_tokens = usage.completion_tokens
    if usage.prompt_tokens_details is not None:
        outcome.num_cached_tokens = usage.prompt_tokens_details.cached_tokens or 0
