"""TokenReach: how much text a token can stand for at most, so that a text can be too long before it is tokenized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from octavo.engine.token_decoder import TokenDecoder, component_steps

MAX_NFC_SHRINKAGE = 4  # of a text in UTF-8: the worst, 7 bytes of Greek, become 2
_LOSSLESS_CUTS = {"ByteLevel", "Digits", "Metaspace", "Split"}  # pre-tokenizers that keep every character
_BYTES_OF_UTF_8 = {*range(0xC0), *range(0xC2, 0xF5)}


@dataclass(frozen=True, slots=True)
class TokenReach:
    """A lower bound of the number of tokens in a text."""

    max_bytes_per_token: int
    dropped_bytes: bytes  # those that the vocabulary cannot write
    composes: bool  # the text is brought into Unicode's form NFC first, which may make it shorter

    def min_num_tokens(self, text: str) -> int:
        """Tokens that the text has at least. Takes no longer than copying the text."""
        shrinkage = MAX_NFC_SHRINKAGE if self.composes and not text.isascii() else 1
        num_bytes = len(text.encode("utf-8", "replace").translate(None, self.dropped_bytes))
        return -(-num_bytes // (self.max_bytes_per_token * shrinkage))


def read_token_reach(tokenizer: Tokenizer, vocabulary: Mapping[str, int], decoder: TokenDecoder) -> TokenReach | None:
    """How far this tokenizer's tokens reach. None if it may drop text, or make one token of any amount of it."""
    added = list(tokenizer.get_added_tokens_decoder().values())
    if any(token.lstrip or token.rstrip for token in added):  # such a token takes all the spaces beside it
        return None
    normalizers = component_steps(tokenizer.normalizer, "normalizers")
    cuts = component_steps(tokenizer.pre_tokenizer, "pretokenizers")
    if not all(map(_keeps_text, normalizers)) or not all(map(_only_cuts, cuts)):
        return None
    written = {data[0] for token in vocabulary if len(token) in (1, 6) and len(data := decoder.to_bytes(token)) == 1}
    dropped = _BYTES_OF_UTF_8 - written
    composes = any(step["type"] == "NFC" for step in normalizers)
    if composes and dropped:
        return None
    # A token of a byte-level vocabulary has a character for each byte, but for the added ones, which are plain text.
    lengths = map(len, vocabulary) if decoder.is_byte_level else (len(token.encode()) for token in vocabulary)
    longest = max([*lengths, *(len(token.content.encode()) for token in added)], default=1)
    return TokenReach(max(longest, 1), bytes(sorted(dropped)), composes)


def _keeps_text(normalizer: dict[str, Any]) -> bool:
    match normalizer:
        case {"type": "NFC" | "Prepend"}:
            return True
        case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)}:
            return len(new.encode()) >= len(old.encode())
        case _:
            return False


def _only_cuts(pre_tokenizer: dict[str, Any]) -> bool:
    return pre_tokenizer["type"] in _LOSSLESS_CUTS and pre_tokenizer.get("behavior") != "Removed"
