"""Counting the tokens of an answer."""

from __future__ import annotations

from octavo.engine.outputs import GenerationOutput
from octavo.server.openai import PromptTokensDetails, Usage


class UsageCounter:
    """Adds up what the outputs of a request say; each output must hold only what is new, or all at once."""

    def __init__(self, num_prompt_tokens: int) -> None:
        self._num_prompt_tokens = num_prompt_tokens
        self._num_completion_tokens = 0
        self._num_cached_tokens_by_id: dict[str, int] = {}

    def add(self, output: GenerationOutput) -> None:
        """Count an output."""
        self._num_completion_tokens += sum(len(choice.token_ids) for choice in output.outputs)
        self._num_cached_tokens_by_id[output.request_id] = output.num_cached_tokens

    def usage(self) -> Usage:
        """The sum so far."""
        return Usage(
            prompt_tokens=self._num_prompt_tokens,
            completion_tokens=self._num_completion_tokens,
            total_tokens=self._num_prompt_tokens + self._num_completion_tokens,
            prompt_tokens_details=PromptTokensDetails(sum(self._num_cached_tokens_by_id.values())),
        )
