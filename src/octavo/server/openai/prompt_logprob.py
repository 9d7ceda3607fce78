"""PromptLogprob: the form that vLLM has for the log-probabilities of a prompt."""

from __future__ import annotations

import msgspec


class PromptLogprob(msgspec.Struct, frozen=True):
    """How likely one token was at one place of the prompt."""

    logprob: float
    rank: int
    decoded_token: str


# One entry a token, by the id as a string: the token that stands there first. Nothing comes before the first token.
PromptLogprobs = list[dict[str, PromptLogprob] | None]
