"""LogitRules: what a request wants done to its logits before a token is chosen from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from octavo.backends.ops import Float32Array, Int32Array, MaskArray
from octavo.core.messages import NewRow
from octavo.core.sampling_params import SamplingParams
from octavo.structured.matcher import Matcher
from octavo.worker.bad_words import BadWords
from octavo.worker.token_counts import TokenCounts

Ids = Sequence[int] | Int32Array


@dataclass(frozen=True, slots=True)
class RuleLists:
    """What the rules come to at one token, as `SamplingBatch` wants it."""

    allowed_ids: Ids = ()
    banned_ids: Sequence[int] = ()
    biased_ids: Ids = ()
    bias: Sequence[float] | Float32Array = ()
    seen_ids: Ids = ()
    output_counts: Ids = ()
    mask: MaskArray | None = None
    is_complete: bool = False  # the grammar lets nothing follow but an end


class LogitRules:
    """The lists of one request, kept up with its output.

    Made from a NewRow alone, which tells prompt from output: a request that comes back after a preemption gets the
    rules that it left with.
    """

    def __init__(self, new_row: NewRow, matcher: Matcher | None, *, max_model_len: int) -> None:
        """`matcher`: that of the request's grammar, if it has one; it has seen no token."""
        params = new_row.sampling_params
        prompt_ids = new_row.token_ids[: new_row.num_prompt_tokens]
        output_ids = new_row.token_ids[new_row.num_prompt_tokens :]
        self.matcher = matcher
        if matcher is not None:
            matcher.accept(output_ids)
        self._allowed_ids: Int32Array = np.array(params.allowed_token_ids or (), np.int32)
        self._biased_ids: Int32Array = np.array([token_id for token_id, _ in params.logit_bias], np.int32)
        self._bias: Float32Array = np.array([bias for _, bias in params.logit_bias], np.float32)
        self._bad_words = BadWords(new_row.bad_word_token_ids, output_ids)
        if params.repetition_penalty == 1:  # the other penalties are about the output alone
            prompt_ids = ()
        self._counts = TokenCounts(prompt_ids, output_ids, max_num_ids=max_model_len) if has_penalties(params) else None

    @property
    def error(self) -> str | None:
        """Why the grammar lets nothing follow at all."""
        return self.matcher.error if self.matcher is not None else None

    def after(self, draft_ids: Sequence[int], vocab_size: int) -> RuleLists:
        """What holds for the token after the output and these drafts."""
        matcher = self.matcher
        if matcher is not None and draft_ids:
            matcher = matcher.after(draft_ids)
        seen_ids, output_counts = ((), ()) if self._counts is None else self._counts.after(draft_ids)
        return RuleLists(
            allowed_ids=self._allowed_ids,
            banned_ids=self._bad_words.banned_ids(draft_ids),
            biased_ids=self._biased_ids,
            bias=self._bias,
            seen_ids=seen_ids,
            output_counts=output_counts,
            mask=None if matcher is None else _mask(matcher, vocab_size),
            is_complete=matcher is not None and matcher.is_complete,
        )

    def append(self, token_id: int) -> None:
        """Add a token to the output."""
        self._bad_words.append(token_id)
        if self.matcher is not None:
            self.matcher.accept([token_id])
        if self._counts is not None:
            self._counts.append(token_id)


def has_rules(new_row: NewRow) -> bool:
    """Whether the request wants anything done to its logits; most do not."""
    params = new_row.sampling_params
    has_lists = params.allowed_token_ids or params.logit_bias or new_row.bad_word_token_ids
    return bool(has_lists) or params.structured_outputs is not None or has_penalties(params)


def has_penalties(params: SamplingParams) -> bool:
    """Whether any penalty is on."""
    return (params.repetition_penalty, params.frequency_penalty, params.presence_penalty) != (1, 0, 0)


def _mask(matcher: Matcher, vocab_size: int) -> MaskArray:
    mask = np.empty(-(-vocab_size // 32), np.uint32)
    matcher.fill_mask(mask)
    return mask
