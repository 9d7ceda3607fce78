"""A vocabulary of one token a byte, and what can be asked of a matcher over it."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from octavo.structured.grammar import Grammar, make_tokenizer
from octavo.structured.lark import lark_grammar
from octavo.structured.matcher import Matcher
from octavo.structured.vocabulary import Vocabulary

EOS_IDS = (0, 1)
MARKER_ID = 2  # a special token that is no end
FIRST_BYTE_ID = 3
VOCABULARY = Vocabulary((b"</s>", b"<eot>", b"<mark>", *(bytes([byte]) for byte in range(256))), (0, 1, 2), EOS_IDS)
NUM_TOKENS = len(VOCABULARY.tokens)


def ids_of(text: str) -> list[int]:
    return [FIRST_BYTE_ID + byte for byte in text.encode()]


def text_of(token_ids: list[int]) -> str:
    return b"".join(VOCABULARY.tokens[token_id] for token_id in token_ids if token_id not in EOS_IDS).decode()


def allowed_ids(matcher: Matcher) -> list[int]:
    mask = np.empty(-(-NUM_TOKENS // 32), np.uint32)
    matcher.fill_mask(mask)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    assert not bits[NUM_TOKENS:].any()
    return np.flatnonzero(bits).tolist()


def compile_grammar(kind: str, source: Any) -> Grammar:
    return Grammar(tokenizer(), lark_grammar(kind, source))


def is_match(grammar: Grammar, text: str) -> bool:
    """Whether the text may be written, token by token, and be the end."""
    matcher = grammar.matcher()
    for token_id in ids_of(text):
        if token_id not in allowed_ids(matcher):
            return False
        matcher.accept([token_id])
    return EOS_IDS[0] in allowed_ids(matcher)


@cache
def tokenizer() -> Any:
    return make_tokenizer(VOCABULARY)
