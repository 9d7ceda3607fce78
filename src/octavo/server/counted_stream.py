"""CountedStream: what the engine brings for the requests of one answer, its tokens counted and its failures raised."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from octavo.engine.generation_stream import GenerationStream
from octavo.engine.outputs import CompletionOutput, GenerationOutput
from octavo.server.errors import ApiError
from octavo.server.openai import PromptTokensDetails, Usage


class CountedStream:
    """The outputs of one or more prompts, `num_choices` choices each. Close it in any case.

    Each output must hold only what is new, or all at once.
    """

    def __init__(self, stream: GenerationStream, num_choices: int) -> None:
        self.num_choices = num_choices  # for each prompt
        self._stream = stream
        self._num_completion_tokens = 0
        self._num_cached_tokens_by_id: dict[str, int] = {}

    @property
    def usage(self) -> Usage:
        """The tokens so far."""
        num_prompt_tokens = self._stream.num_prompt_tokens
        return Usage(
            prompt_tokens=num_prompt_tokens,
            completion_tokens=self._num_completion_tokens,
            total_tokens=num_prompt_tokens + self._num_completion_tokens,
            prompt_tokens_details=PromptTokensDetails(sum(self._num_cached_tokens_by_id.values())),
        )

    async def outputs(self) -> AsyncGenerator[GenerationOutput, None]:
        """What the engine brings. Raises ApiError if a choice failed."""
        async for output in self._stream:
            self._num_completion_tokens += sum(len(choice.token_ids) for choice in output.outputs)
            self._num_cached_tokens_by_id[output.request_id] = output.num_cached_tokens
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
            self.close()
        return sorted(choices.items())

    def index_of(self, output: GenerationOutput, choice: CompletionOutput) -> int:
        """A choice's index in the answer: those of the first prompt come first."""
        return self._stream.prompt_index(output) * self.num_choices + choice.index

    def close(self) -> None:
        """End whatever still runs. Never waits."""
        self._stream.close()


def _check_not_failed(choice: CompletionOutput) -> None:
    if choice.finish_reason == "error":
        raise ApiError(500, "generation_failed", f"the generation failed: {choice.error}")
    if choice.finish_reason == "abort":
        raise ApiError(503, "aborted", "the generation was ended before it was complete; the server is shutting down")
