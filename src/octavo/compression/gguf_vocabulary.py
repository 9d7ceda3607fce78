"""The token lists of a GGUF file, out of a tokenizer.json, as llama.cpp's convert_hf_to_gguf.py writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from octavo.engine.gguf_tokenizer import build_gguf_tokenizer
from octavo.weights.source import CheckpointError
from octavo.weights.tokenizer_spec import GGUFVocabulary, TokenType

_PRE_TOKENIZERS = ("smollm", "qwen2", "llama-bpe", "gpt-2")


def gguf_vocabulary(tokenizer_json: Path, vocab_size: int) -> GGUFVocabulary:
    """The tokens, with unused ones up to `vocab_size`.

    Raises CheckpointError for a tokenizer that octavo would not build again from what a GGUF file says.
    """
    content = json.loads(tokenizer_json.read_bytes())
    pre = _pre_tokenizer_name(content, tokenizer_json)
    added = {token["id"]: token for token in content.get("added_tokens", ())}
    token_by_id = {token_id: token for token, token_id in content["model"]["vocab"].items()}
    token_by_id |= {token_id: token["content"] for token_id, token in added.items()}
    tokens, types = [], []
    for token_id in range(vocab_size):
        tokens.append(token_by_id.get(token_id, f"[PAD{token_id}]"))
        if token_id in added:
            types.append(TokenType.CONTROL if added[token_id]["special"] else TokenType.USER_DEFINED)
        else:
            types.append(TokenType.NORMAL if token_id in token_by_id else TokenType.UNUSED)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in content["model"]["merges"]]
    return GGUFVocabulary("gpt2", pre, tokens, [*map(int, types)], merges, [], False, None)


def _pre_tokenizer_name(content: dict[str, Any], place: Path) -> str:
    """llama.cpp's name for how a text is cut into words before bytes are merged."""
    for name in _PRE_TOKENIZERS:
        empty = GGUFVocabulary("gpt2", name, [], [], [], [], False, None)
        if _way_to_words(json.loads(build_gguf_tokenizer(empty).to_str())) == _way_to_words(content):
            return name
    raise CheckpointError(
        f"{place} cuts texts in a way that has no name in GGUF files, or none of those that octavo knows: "
        f"{', '.join(_PRE_TOKENIZERS)}; convert the model with llama.cpp's convert_hf_to_gguf.py --outtype bf16 first"
    )


def _way_to_words(content: dict[str, Any]) -> tuple[Any, ...]:
    model = content["model"]
    return (
        model.get("type"),
        model.get("ignore_merges", False),
        _without_offsets(content.get("normalizer")),
        _without_offsets(content.get("pre_tokenizer")),
    )


def _without_offsets(part: Any) -> Any:
    """A part of a tokenizer.json but for how it counts characters, which changes no token."""
    if isinstance(part, dict):
        return {key: _without_offsets(value) for key, value in part.items() if key != "trim_offsets"}
    return [_without_offsets(item) for item in part] if isinstance(part, list) else part
