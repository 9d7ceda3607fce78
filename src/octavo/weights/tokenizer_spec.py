"""TokenizerSpec: what a checkpoint says about its tokenizer, for engine.tokenizer to build it from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path


class TokenType(IntEnum):
    """What GGUF says a token of the vocabulary is."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class GGUFVocabulary:
    """The token lists of a GGUF file, token i at index i."""

    model: str  # "gpt2": byte-level BPE; "llama": SentencePiece BPE
    pre: str  # how byte-level BPE cuts the text into words before it merges, by llama.cpp's name
    tokens: list[str]
    types: list[int]  # TokenType
    merges: list[str]  # of byte-level BPE: the two parts with a space between them, most important first
    scores: list[float]  # of SentencePiece: the token with the largest score is merged first
    adds_space_prefix: bool  # of SentencePiece: text is encoded as if a space went before it
    unk_token_id: int | None


@dataclass(frozen=True, slots=True)
class TokenizerSpec:
    """A tokenizer: its vocabulary, either a tokenizer.json or GGUF's lists, and how a model wants to be spoken to."""

    vocabulary: Path | GGUFVocabulary
    chat_template: str | None  # Jinja source
    bos_token: str | None
    eos_token: str | None
    adds_bos: bool | None  # whether text begins with the BOS token; None: as tokenizer.json says

    def tokens(self) -> dict[int, str]:
        """The tokens by id, as the file spells them; both formats spell alike."""
        if isinstance(self.vocabulary, GGUFVocabulary):
            return dict(enumerate(self.vocabulary.tokens))
        content = json.loads(self.vocabulary.read_bytes())
        vocabulary = content["model"]["vocab"]
        if isinstance(vocabulary, dict):
            tokens = {token_id: token for token, token_id in vocabulary.items()}
        else:  # a unigram model's: tokens and scores, in the order of the ids
            tokens = {token_id: token for token_id, (token, _) in enumerate(vocabulary)}
        return tokens | {added["id"]: added["content"] for added in content.get("added_tokens", ())}
