"""Vocabulary: what a grammar has to know of a model's tokens."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens as bytes. Special ones stand for no text, so that only a grammar that names them may use them."""

    tokens: tuple[bytes, ...]  # by id
    special_token_ids: tuple[int, ...]
    eos_token_ids: tuple[int, ...]  # any of them may follow when the output is complete

    def to_json(self) -> str:
        """As one line of JSON."""
        return json.dumps({**asdict(self), "tokens": [token.decode("latin-1") for token in self.tokens]})

    @classmethod
    def from_json(cls, text: bytes) -> Vocabulary:
        """From what `to_json` wrote."""
        fields = json.loads(text)
        tokens = tuple(token.encode("latin-1") for token in fields["tokens"])
        return cls(tokens, tuple(fields["special_token_ids"]), tuple(fields["eos_token_ids"]))
