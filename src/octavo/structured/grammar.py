"""Grammar: compiled by llguidance, with a matcher for each sequence."""

from __future__ import annotations

import re
from typing import Any, cast

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from octavo.structured.matcher import Matcher
from octavo.structured.vocabulary import Vocabulary

# What one compilation and one mask may take. Within these a mask took 40 ms of a 2 GHz core at worst, for grammars made
# to be slow, and 0.02 ms for schemas as people write them, of which none came near.
LIMITS = LLParserLimits(
    step_lexer_fuel=50_000,
    step_max_items=10_000,
    max_items_in_row=500,
    max_lexer_states=20_000,
    verbose_errors=False,
)


class Grammar:
    """What llguidance made of a grammar in Lark's notation."""

    def __init__(self, tokenizer: LLTokenizer, lark: str) -> None:
        """Compile. Raises ValueError, with the reason in one line, also where no text at all satisfies the grammar."""
        self._start = LLMatcher(tokenizer, lark, log_level=0, limits=LIMITS)
        if not self._start.is_error():
            self._start.compute_bitmask()
        if self._start.is_error():
            raise ValueError(_reason(self._start.get_error()))

    def matcher(self) -> Matcher:
        """A matcher that has seen no token."""
        return Matcher(self._start.deep_copy())


def make_tokenizer(vocabulary: Vocabulary) -> LLTokenizer:
    """The tokens as llguidance wants them. Takes tenths of a second, in which no other thread runs Python."""
    tokens = cast(TokenizerWrapper, _Tokens(vocabulary))
    return LLTokenizer(tokens, n_vocab=len(vocabulary.tokens), eos_token=list(vocabulary.eos_token_ids))


def _reason(error: str) -> str:
    """An error of llguidance in one line, without its copy of the grammar and where a schema begins in that."""
    lines = [line.strip() for line in error.splitlines()]
    end = next((i for i, line in enumerate(lines) if line.startswith(("1 | ", "<non-verbose/>"))), len(lines))
    reason = re.sub(r"^at 1\(8\): (failed to compile JSON schema: )?", "", " ".join(lines[:end]))
    return "no text satisfies it" if reason.startswith("NoExtension") else reason


class _Tokens:
    """The attributes of llguidance's TokenizerWrapper."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.tokens = vocabulary.tokens
        self.special_token_ids = vocabulary.special_token_ids
        self.eos_token_id = vocabulary.eos_token_ids[0]

    def __call__(self, text: Any) -> list[int]:
        raise AssertionError("nothing is tokenized, since nothing is forced")
