"""Matcher: follows the output of one sequence through its grammar."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from llguidance import LLMatcher


class Matcher:
    """Where a sequence stands in its grammar. `error` says why it stands nowhere; from then on nothing may follow."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    @property
    def error(self) -> str | None:
        """What went wrong: a token that may not follow, or a state that is too complex to go on from."""
        return self._matcher.get_error().partition("\n")[0] if self._matcher.is_error() else None

    @property
    def is_complete(self) -> bool:
        """Whether only an end-of-sequence token may follow, again and again."""
        return self._matcher.is_stopped()

    def fill_mask(self, mask: NDArray[np.uint32]) -> None:
        """Set the bits of the ids that may follow: bit i % 32 of word i // 32. [ceil(vocab_size / 32)]"""
        self._matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if self._matcher.is_error():
            mask[:] = 0

    def accept(self, token_ids: Iterable[int]) -> None:
        """Go on by these tokens."""
        for token_id in token_ids:
            self._matcher.consume_token(token_id)

    def after(self, token_ids: Iterable[int]) -> Matcher:
        """A matcher of its own that has gone on by these tokens."""
        ahead = Matcher(self._matcher.deep_copy())
        ahead.accept(token_ids)
        return ahead

    def num_allowed(self, token_ids: Sequence[int]) -> int:
        """How many of these tokens may follow, one after another."""
        return self._matcher.validate_tokens(list(token_ids))
