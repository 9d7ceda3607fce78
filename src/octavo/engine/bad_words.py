"""Bad words: from texts that must not be generated to the token sequences that would generate them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from octavo.core.sampling_params import ParameterError

if TYPE_CHECKING:
    from octavo.engine.tokenizer import Tokenizer

MAX_BAD_WORD_CHARS = 10_000  # of all words together: tokenizing more takes milliseconds


def tokenize_bad_words(words: Sequence[str], tokenizer: Tokenizer, vocab_size: int) -> tuple[tuple[int, ...], ...]:
    """The sequences of tokens that write one of these words.

    A word is tokenized as the beginning of a text and, with a space before it, as a word within a text. (vLLM takes
    the second only if it has as many tokens as the first, and lets words through that way.) Other ways to write it,
    as a part of a longer word or in odd pieces, stay open. A sequence with an id from `vocab_size` up cannot be
    generated anyway and is left out. Raises ParameterError.
    """
    num_chars = sum(map(len, words))
    if num_chars > MAX_BAD_WORD_CHARS:
        raise ParameterError(
            "bad_words", f"bad_words holds {num_chars} characters; at most {MAX_BAD_WORD_CHARS} are allowed"
        )
    sequences = dict.fromkeys(sequence for word in words for sequence in _sequences(word, tokenizer))
    return tuple(sequence for sequence in sequences if max(sequence) < vocab_size)


def _sequences(word: str, tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    stem = word.lstrip(" ") or word
    first, inner = (_encode(space + stem, tokenizer) for space in ("", " "))
    if not first:  # a tokenizer may drop what it does not know
        raise ParameterError("bad_words", f"bad_words holds {word!r}, which has no tokens of its own; leave it out")
    is_covered = inner[-len(first) :] == first  # the space is a token of its own
    return [first] if is_covered else [first, inner]


def _encode(text: str, tokenizer: Tokenizer) -> tuple[int, ...]:
    try:
        return tuple(tokenizer.encode(text, add_special_tokens=False))
    except ValueError as error:
        raise ParameterError("bad_words", str(error)) from error
