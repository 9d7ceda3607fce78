"""Two small tokenizers: byte-level BPE trained on a few words, and SentencePiece BPE written by hand."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from octavo.engine.tokenizer import Tokenizer
from octavo.weights.gguf_file import GGUFFile
from octavo.weights.gguf_metadata import read_tokenizer_spec
from octavo.weights.tokenizer_spec import TokenizerSpec, TokenType
from tests.weights.gguf_writing import write_gguf

SPECIAL_TOKENS = ("<|end|>", "<|user|>")
_CORPUS = [
    "the old lighthouse keeper told the other keeper",
    "안녕하세요 세계, 안녕 세상",
    "👩‍👩‍👧 🇩🇪 👍🏽",
    "x = x + 1234",
] * 3

# In order of rising score, so that the order of ids is the wrong one to merge in.
SENTENCEPIECE_PIECES = [
    *"▁abcdefghilmnorstuwxyz.,!éü안녕",
    *("een", "nnn", "ee", "nn", "안녕", "▁▁▁▁", "▁▁", "▁in", "th"),
    *("▁there", "▁hello", "▁he", "llo", "hello", "re", "▁a", "ll", "er", "in", "▁the", "he", "▁t"),
]


@functools.cache
def trained_byte_level() -> tokenizers.Tokenizer:
    """The library's own object; nothing may change it."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return tokenizer


def byte_level_tokenizer(folder: Path, **changes: Any) -> Tokenizer:
    """Read from a tokenizer.json in `folder`; `changes` to the TokenizerSpec."""
    path = folder / "tokenizer.json"
    trained_byte_level().save(str(path))
    fields: dict[str, Any] = {"chat_template": None, "bos_token": None, "eos_token": "<|end|>", "adds_bos": False}
    return Tokenizer(TokenizerSpec(vocabulary=path, **fields | changes))


def byte_level_metadata() -> dict[str, Any]:
    """The trained tokenizer as GGUF describes it."""
    tokenizer = trained_byte_level()
    tokens = [tokenizer.id_to_token(token_id) for token_id in range(tokenizer.get_vocab_size())]
    types = [TokenType.CONTROL if token in SPECIAL_TOKENS else TokenType.NORMAL for token in tokens]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [int(kind) for kind in types],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in json.loads(tokenizer.to_str())["model"]["merges"]],
        "tokenizer.ggml.eos_token_id": 0,
    }


def sentencepiece_metadata() -> dict[str, Any]:
    """The hand-made tokenizer as GGUF describes it: <unk>, <s>, </s>, the bytes, then the pieces."""
    special = {"<unk>": TokenType.UNKNOWN, "<s>": TokenType.CONTROL, "</s>": TokenType.CONTROL}
    type_by_token = special | {f"<0x{byte:02X}>": TokenType.BYTE for byte in range(256)}
    type_by_token |= dict.fromkeys(SENTENCEPIECE_PIECES, TokenType.NORMAL)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": list(type_by_token),
        "tokenizer.ggml.token_type": [int(kind) for kind in type_by_token.values()],
        "tokenizer.ggml.scores": [float(token_id) - 1000 for token_id in range(len(type_by_token))],
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


def gguf_tokenizer(folder: Path, metadata: dict[str, Any]) -> Tokenizer:
    """The tokenizer of a GGUF file with this metadata."""
    return Tokenizer(read_tokenizer_spec(GGUFFile(write_gguf(folder / "tokenizer.gguf", metadata))))
