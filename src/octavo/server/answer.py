"""What the answers of both endpoints have in common: a head, an account of their tokens, and the ways to fail."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from uuid import uuid4

import msgspec
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from octavo.engine.generation_stream import GenerationStream
from octavo.engine.outputs import CompletionOutput, GenerationOutput
from octavo.server.errors import ApiError, invalid
from octavo.server.openai import GenerationFields, StreamOptions, Usage
from octavo.server.usage import UsageCounter


class Answer:
    """One answer under way, streamed or whole. Used as a base; `stream` ends with it."""

    def __init__(self, id_prefix: str, model: str, body: GenerationFields, stream: GenerationStream) -> None:
        options = body.stream_options or StreamOptions()
        self.id = f"{id_prefix}-{uuid4().hex}"
        self.created = int(time.time())
        self.model = model
        self.num_choices = body.n or 1  # for each prompt
        self.has_usage_chunk = bool(options.include_usage)
        self._has_running_usage = bool(options.continuous_usage_stats)
        self._stream = stream
        self._usage = UsageCounter(stream.num_prompt_tokens)

    @property
    def usage(self) -> Usage:
        """The tokens so far."""
        return self._usage.usage()

    @property
    def chunk_usage(self) -> Usage | UnsetType | None:
        """The `usage` of a chunk with choices: null says that it will come, absence that nobody asked for it."""
        if self._has_running_usage:
            return self.usage
        return None if self.has_usage_chunk else UNSET

    async def outputs(self) -> AsyncGenerator[GenerationOutput, None]:
        """What the engine brings, counted. Raises ApiError if a choice failed."""
        async for output in self._stream:
            self._usage.add(output)
            for choice in output.outputs:
                _check_not_failed(choice)
            yield output

    async def final_choices(self) -> list[tuple[int, CompletionOutput]]:
        """Every choice, with its index in the answer, once all have ended. Leaves nothing running if cancelled."""
        choices: dict[int, CompletionOutput] = {}
        try:
            async for output in self.outputs():
                choices |= {self.index_of(output, choice): choice for choice in output.outputs}
        finally:
            self._stream.close()
        return sorted(choices.items())

    def index_of(self, output: GenerationOutput, choice: CompletionOutput) -> int:
        """A choice's index in the answer: those of the first prompt come first."""
        return self._stream.prompt_index(output) * self.num_choices + choice.index


def check_stream_options(body: GenerationFields) -> None:
    """Raise the error for options of a stream where none is asked for."""
    if body.stream_options is not None and not body.stream:
        raise invalid("stream_options", "stream_options needs stream: true")


def json_response(body: msgspec.Struct) -> Response:
    """The body as JSON."""
    return Response(msgspec.json.encode(body), media_type="application/json")


def _check_not_failed(choice: CompletionOutput) -> None:
    if choice.finish_reason == "error":
        raise ApiError(500, "generation_failed", f"the generation failed: {choice.error}")
    if choice.finish_reason == "abort":
        raise ApiError(503, "aborted", "the generation was ended before it was complete; the server is shutting down")
