"""What a user gets: the text of each choice and what is known about it. Attribute names are vLLM's."""

from __future__ import annotations

from dataclasses import dataclass, replace

from octavo.core.messages import CacheMiss


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
    finish_reason: str | None = None  # "stop", "length", "abort", "timeout" or "error"; None: more will come
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
    cache_miss: CacheMiss | None = None  # why there were no more of these, if that was asked for
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None  # of its tokens; the first has none. None: not known


def merge_deltas(first: GenerationOutput, second: GenerationOutput) -> GenerationOutput:
    """Two successive outputs of a request, of what is new in each, as one."""
    choice_by_index = {choice.index: choice for choice in first.outputs}
    for choice in second.outputs:
        before = choice_by_index.get(choice.index)
        choice_by_index[choice.index] = choice if before is None else _merge_choices(before, choice)
    merged = sorted(choice_by_index.values(), key=lambda choice: choice.index)
    return replace(second, outputs=merged)


def _merge_choices(first: CompletionOutput, second: CompletionOutput) -> CompletionOutput:
    return replace(
        second,
        text=first.text + second.text,
        token_ids=first.token_ids + second.token_ids,
        logprobs=None if second.logprobs is None else (first.logprobs or []) + second.logprobs,
    )
