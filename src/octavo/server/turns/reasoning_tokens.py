"""Counting the tokens of the reasoning, which the text no longer shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from octavo.server.turns.formats import ReasoningFormat

if TYPE_CHECKING:
    from octavo.engine.tokenizer import Tokenizer


class ReasoningCounter:
    """Counts the tokens of one choice up to the one that ends its reasoning, markers included."""

    def __init__(self, reasoning_format: ReasoningFormat, tokenizer: Tokenizer, *, is_reasoning: bool) -> None:
        self._begin, self._end = reasoning_format.begin.encode(), reasoning_format.end.encode()
        self._tokenizer = tokenizer
        self._is_reasoning = is_reasoning  # else it may yet begin
        self._has_ended = False
        self._text = b""  # as much of it as may hold a marker
        self._num_tokens = 0

    @property
    def num_tokens(self) -> int:
        """The count so far."""
        return self._num_tokens if self._is_reasoning else 0

    def add(self, token_ids: Iterable[int]) -> None:
        """Take in the next tokens."""
        for token_id in token_ids:
            if self._has_ended:
                return
            self._num_tokens += 1
            self._text += self._tokenizer.token_bytes(token_id)
            if not self._is_reasoning:
                text = self._text.lstrip()
                self._is_reasoning = text.startswith(self._begin)
                self._has_ended = not self._is_reasoning and not self._begin.startswith(text)
            if self._is_reasoning:
                self._has_ended = self._end in self._text
                self._text = self._text[-len(self._end) :]
