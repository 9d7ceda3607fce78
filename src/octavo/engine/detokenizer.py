"""Detokenizer: the tokens of one choice become text as they come."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.engine.tokenizer import Tokenizer


class Detokenizer:
    """Text of tokens that continue a prompt, piece by piece.

    The pieces together are `tokenizer.decode(all ids, is_continuation=True)`, whatever the ids. A character is
    delivered with the token that completes it, never in part: at most three bytes wait. Bytes that cannot become a
    character are delivered as U+FFFD as soon as that is known.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skips_special_tokens = skip_special_tokens
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token_id: int) -> str:
        """The text that this token completes; may be empty. Raises ValueError for an id outside the vocabulary."""
        if self._skips_special_tokens and self._tokenizer.is_special(token_id):
            return ""
        return self._utf8.decode(self._tokenizer.token_bytes(token_id))

    def finish(self) -> str:
        """What is left when no more tokens come: U+FFFD for the beginning of a character, else nothing."""
        return self._utf8.decode(b"", final=True)
