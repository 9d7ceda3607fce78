"""TokenDecoder: which bytes a token of the vocabulary stands for.

A token need not be a whole number of characters, so text is put together as bytes and read as UTF-8 only then.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from octavo.weights.source import CheckpointError

SPACE = "▁"  # SentencePiece's stand-in for a space
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


@dataclass(frozen=True, slots=True)
class TokenDecoder:
    """How a vocabulary writes bytes."""

    is_byte_level: bool  # every character of a token stands for a byte, as in GPT-2; else tokens are text
    has_byte_fallback: bool  # the token <0x0A> stands for a byte
    strips_leading_space: bool  # text is encoded with a space before it, which is not part of the text

    def to_bytes(self, token: str) -> bytes:
        """The bytes of a token of the model's vocabulary; special and added tokens are their own text instead."""
        if self.is_byte_level:
            try:
                return bytes([_BYTE_BY_CHARACTER[character] for character in token])
            except KeyError:  # as the tokenizers library does: a token that is no byte string is text
                return token.encode()
        if self.has_byte_fallback and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match[1], 16)])
        return token.replace(SPACE, " ").encode()


def read_token_decoder(tokenizer: Tokenizer) -> TokenDecoder:
    """How this tokenizer writes bytes. Raises CheckpointError unless it is of the byte-level or SentencePiece kind."""
    steps = component_steps(tokenizer.decoder, "decoders")
    kinds = [step["type"] for step in steps]
    if "ByteLevel" in kinds:
        return TokenDecoder(is_byte_level=True, has_byte_fallback=False, strips_leading_space=False)
    replaces_space = any(step.get("pattern") == {"String": SPACE} and step.get("content") == " " for step in steps)
    metaspace = next((step for step in steps if step["type"] == "Metaspace" and step["replacement"] == SPACE), None)
    if metaspace is None and not replaces_space:
        raise CheckpointError(
            f"a tokenizer with the decoder {kinds} is not supported; octavo reads byte-level BPE and SentencePiece BPE"
        )
    strips = any(step["type"] == "Strip" and step["content"] == " " and step["start"] > 0 for step in steps)
    return TokenDecoder(
        is_byte_level=False,
        has_byte_fallback="ByteFallback" in kinds,
        strips_leading_space=strips or (metaspace is not None and metaspace["prepend_scheme"] != "never"),
    )


def component_steps(component: Any, name: str) -> list[dict[str, Any]]:
    """The steps of a tokenizer's component, as tokenizer.json writes them; a sequence has them under this name."""
    if component is None:
        return []
    state: dict[str, Any] = json.loads(component.__getstate__())
    steps: list[dict[str, Any]] = state[name] if state["type"] == "Sequence" else [state]
    return steps


def _byte_by_character() -> dict[str, int]:
    """GPT-2's alphabet: printable bytes stand for themselves, the others for characters from U+0100 up."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTE_BY_CHARACTER = _byte_by_character()
