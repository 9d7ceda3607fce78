"""CountedStream: what the engine brings for the requests of one answer, its tokens counted and its failures raised."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace

from msgspec import UNSET

from octavo.core.messages import CONSTRAINTS_FAILED, CacheMiss
from octavo.engine.generation_stream import GenerationStream
from octavo.engine.outputs import CompletionOutput, GenerationOutput, Logprob
from octavo.server.errors import ApiError, invalid
from octavo.server.usage import PromptTokensDetails, Usage


class CountedStream:
    """The outputs of one or more prompts, `num_choices` choices each. Close it in any case.

    Each output must hold only what is new, or all at once. `is_empty`: the engine generates a token at least, and the
    client wants none.
    """

    def __init__(self, stream: GenerationStream, num_choices: int, *, is_empty: bool = False) -> None:
        self.num_choices = num_choices  # for each prompt
        self.prompt_token_ids = stream.prompt_token_ids  # of each prompt
        self.prompt_logprobs: list[dict[int, Logprob] | None] | None = None  # of the prompt of the last output
        self._is_empty = is_empty
        self._stream = stream
        self._num_completion_tokens = 0
        self._num_cached_tokens_by_id: dict[str, int] = {}
        self._cache_miss_by_id: dict[str, CacheMiss] = {}

    @property
    def usage(self) -> Usage:
        """The tokens so far."""
        num_prompt_tokens = self._stream.num_prompt_tokens
        return Usage(
            prompt_tokens=num_prompt_tokens,
            completion_tokens=self._num_completion_tokens,
            total_tokens=num_prompt_tokens + self._num_completion_tokens,
            prompt_tokens_details=PromptTokensDetails(
                sum(self._num_cached_tokens_by_id.values()), list(self._cache_miss_by_id.values()) or UNSET
            ),
        )

    async def outputs(self) -> AsyncGenerator[GenerationOutput, None]:
        """What the engine brings. Raises ApiError if a choice failed."""
        async for output in self._stream:
            if self._is_empty:
                output = replace(output, outputs=[_without_tokens(choice) for choice in output.outputs])
            self._num_completion_tokens += sum(len(choice.token_ids) for choice in output.outputs)
            self.prompt_logprobs = output.prompt_logprobs
            self._num_cached_tokens_by_id[output.request_id] = output.num_cached_tokens
            if output.cache_miss is not None:
                self._cache_miss_by_id[output.request_id] = output.cache_miss
            for choice in output.outputs:
                _check_not_failed(choice)
                if choice.finish_reason == "timeout" and self._num_completion_tokens == 0:
                    raise ApiError(503, "timeout", "the request's time was over before it had begun; try again later")
            yield output

    def index_of(self, output: GenerationOutput, choice: CompletionOutput) -> int:
        """A choice's index in the answer: those of the first prompt come first."""
        return self._stream.prompt_index(output) * self.num_choices + choice.index

    def close(self) -> None:
        """End whatever still runs. Never waits."""
        self._stream.close()


def _without_tokens(choice: CompletionOutput) -> CompletionOutput:
    if choice.finish_reason not in ("stop", "length"):
        return choice
    logprobs: list[dict[int, Logprob]] | None = None if choice.logprobs is None else []
    return CompletionOutput(choice.index, "", [], None, logprobs, finish_reason="length")


def _check_not_failed(choice: CompletionOutput) -> None:
    if choice.finish_reason == "error" and (choice.error or "").startswith(CONSTRAINTS_FAILED):
        raise invalid(None, str(choice.error), "constraints_failed")
    if choice.finish_reason == "error":
        raise ApiError(500, "generation_failed", f"the generation failed: {choice.error}")
    if choice.finish_reason == "abort":
        raise ApiError(503, "aborted", "the generation was ended before it was complete; the server is shutting down")
