"""LogitRules: what a request wants done to its logits before a token is chosen from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo.backends.ops import Float32Array, Int32Array
from octavo.core.messages import NewRow
from octavo.core.sampling_params import SamplingParams
from octavo.structured.matcher import Matcher
from octavo.worker.bad_words import BadWords
from octavo.worker.token_counts import TokenCounts


class LogitRules:
    """The lists of one request, kept up with its output.

    Made from a NewRow alone, which tells prompt from output: a request that comes back after a preemption gets the
    rules that it left with.
    """

    def __init__(self, new_row: NewRow, matcher: Matcher | None = None, *, max_model_len: int) -> None:
        """`matcher`: that of the request's grammar, if it has one; it has seen no token."""
        params = new_row.sampling_params
        prompt_ids = new_row.token_ids[: new_row.num_prompt_tokens]
        output_ids = new_row.token_ids[new_row.num_prompt_tokens :]
        self.allowed_ids: Int32Array = np.array(params.allowed_token_ids or (), np.int32)
        self.biased_ids: Int32Array = np.array([token_id for token_id, _ in params.logit_bias], np.int32)
        self.bias: Float32Array = np.array([bias for _, bias in params.logit_bias], np.float32)
        self.matcher = matcher
        if matcher is not None:
            matcher.accept(output_ids)
        self._bad_words = BadWords(new_row.bad_word_token_ids, output_ids)
        if params.repetition_penalty == 1:  # the other penalties are about the output alone
            prompt_ids = ()
        self.counts = TokenCounts(prompt_ids, output_ids, max_num_ids=max_model_len) if has_penalties(params) else None

    @property
    def banned_ids(self) -> Sequence[int]:
        """The ids that would complete a bad word."""
        return self._bad_words.banned_ids()

    @property
    def is_complete(self) -> bool:
        """Whether the grammar lets nothing follow but an end."""
        return self.matcher is not None and self.matcher.is_complete

    @property
    def error(self) -> str | None:
        """Why the grammar lets nothing follow at all."""
        return self.matcher.error if self.matcher is not None else None

    def append(self, token_id: int) -> None:
        """Add a token to the output."""
        self._bad_words.append(token_id)
        if self.matcher is not None:
            self.matcher.accept([token_id])
        if self.counts is not None:
            self.counts.append(token_id)


def has_rules(new_row: NewRow) -> bool:
    """Whether the request wants anything done to its logits; most do not."""
    params = new_row.sampling_params
    has_lists = params.allowed_token_ids or params.logit_bias or new_row.bad_word_token_ids
    return bool(has_lists) or params.structured_outputs is not None or has_penalties(params)


def has_penalties(params: SamplingParams) -> bool:
    """Whether any penalty is on."""
    return (params.repetition_penalty, params.frequency_penalty, params.presence_penalty) != (1, 0, 0)
