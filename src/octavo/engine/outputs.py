"""What a user gets: the text of each choice and what is known about it. Attribute names are vLLM's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Logprob:
    """How likely one token was at one place."""

    logprob: float
    rank: int  # 1 = most likely
    decoded_token: str


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One choice: everything so far, or what is new, as SamplingParams.output_kind says."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None  # of all tokens so far; None: no log-probabilities were asked for
    logprobs: list[dict[int, Logprob]] | None  # by token id for each token: the chosen one, then the most likely
    finish_reason: str | None = None  # "stop", "length", "abort" or "error"; None: more will come
    stop_reason: int | str | None = None  # the token id or the stop string that ended it; None: end of sequence
    error: str | None = None  # what went wrong, where finish_reason is "error"

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will come."""
        return self.finish_reason is not None


@dataclass(frozen=True, slots=True)
class GenerationOutput:
    """What one request has brought: choices in the order of their index."""

    request_id: str
    prompt: str | None  # None: the prompt came as token ids
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool  # whether every choice has ended, also those not in `outputs`
    num_cached_tokens: int = 0  # prompt tokens taken from the prefix cache
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None  # of its tokens; the first has none. None: not known
