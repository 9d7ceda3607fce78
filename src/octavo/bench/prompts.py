"""Prompts of a wanted number of tokens, for a server whose tokenizer is not at hand.

They are made of words. How many tokens a word takes, and how many a template adds, the server's own count tells: two
requests of known words give a line.
"""

from __future__ import annotations

import random
from typing import NamedTuple

# Ordinary words, one token each in most vocabularies.
_TEXT = """
time people water house world school number night point story money month right study book side line city name
team minute idea body back parent face level office door health person art history party result change morning
reason research girl boy moment air teacher force foot age policy music market sense service area land field
table garden river summer window letter mountain
"""
WORDS = _TEXT.split()
CALIBRATION_TEXTS = (WORDS[0], " ".join(WORDS))  # what finds the line: every word once, since any may come


class TokenLine(NamedTuple):
    """num_tokens = tokens_per_word * num_words + num_added_tokens, fitted to a server's count."""

    tokens_per_word: float
    num_added_tokens: float

    @classmethod
    def through(cls, num_tokens: tuple[int, int]) -> TokenLine:
        """The line by the counts of CALIBRATION_TEXTS. Raises ValueError if more words took no more tokens."""
        slope = (num_tokens[1] - num_tokens[0]) / (len(WORDS) - 1)
        if slope <= 0:
            raise ValueError(
                f"the server's usage counts {num_tokens[0]} tokens for one word and {num_tokens[1]} for {len(WORDS)}; "
                "lengths in tokens need a server that counts"
            )
        return cls(slope, num_tokens[1] - slope * len(WORDS))

    def num_words(self, num_tokens: int) -> int:
        """How many words make a prompt of so many tokens."""
        return max(1, round((num_tokens - self.num_added_tokens) / self.tokens_per_word))


def random_text(num_words: int, rng: random.Random) -> str:
    """So many words at random."""
    return " ".join(rng.choices(WORDS, k=num_words))


def prompt_with_prefix(prefix: str, num_words: int, rng: random.Random) -> str:
    """`prefix` and random words after it, `num_words` together, or the prefix and one word where that is more."""
    num_own_words = max(1, num_words - len(prefix.split()))
    return f"{prefix} {random_text(num_own_words, rng)}".lstrip()
