from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octavo.config import EngineConfig, SpeculativeConfig
from octavo.engine.build import build_engine
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.source import CheckpointError
from octavo.weights.tokenizer_spec import GGUFVocabulary, TokenizerSpec
from tests.engine.tiny_model import write_tiny_model

BLOCK_BYTES = 2 * 2 * 2 * 16 * 16 * 4  # of the tiny model in float32


def build(model: Path, draft: Path, **options: Any):
    speculative = SpeculativeConfig("draft_model", 4, str(draft))
    config = EngineConfig(
        str(model), backend="reference", num_threads=1, speculative_config=speculative, max_num_seqs=3, **options
    )
    return build_engine(config, open_checkpoint(model))


def change_json(path: Path, change) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_a_draft_model_takes_its_part_of_every_block(tiny_model):
    plain = build_engine(
        EngineConfig(str(tiny_model), backend="reference", max_num_seqs=3), open_checkpoint(tiny_model)
    )
    built = build(tiny_model, tiny_model, kv_cache_memory_bytes=40 * BLOCK_BYTES)
    memory = built.memory
    assert (memory.block_bytes, memory.num_blocks) == (2 * BLOCK_BYTES, 20)
    assert memory.use.draft_weight_bytes == plain.memory.use.weights_bytes == memory.use.weights_bytes // 2
    assert memory.use.activation_bytes > plain.memory.use.activation_bytes + 3 * BLOCK_BYTES
    assert f"and {BLOCK_BYTES} for the draft model" in memory.render()


def test_a_model_with_another_tokenizer_cannot_guess(tiny_model, tmp_path):
    other = write_tiny_model(tmp_path / "other")
    change_json(other / "tokenizer.json", lambda tokenizer: swap(tokenizer["model"]["vocab"], "a", "b"))
    with pytest.raises(ValueError, match="the draft model other means 'b' by token 100 and tiny means 'a'"):
        build(tiny_model, other)


def swap(vocabulary: dict[str, int], one: str, other: str) -> None:
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]


def test_a_model_with_too_few_tokens_or_positions_cannot_guess(tiny_model, tmp_path):
    short = write_tiny_model(tmp_path / "short")
    change_json(short / "config.json", lambda config: config.update(max_position_embeddings=128))
    with pytest.raises(
        ValueError, match="the draft model short has 128 positions and max_model_len is 512; lower --max"
    ):
        build(tiny_model, short)
    assert build(tiny_model, short, max_model_len=128).limits.max_model_len == 128

    def cut(weights):
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            weights[name] = weights[name][:200]

    narrow = write_tiny_model(tmp_path / "narrow", cut)
    change_json(narrow / "config.json", lambda config: config.update(vocab_size=200))
    with pytest.raises(ValueError, match="the draft model narrow has 200 token ids and tiny 259; it must have as many"):
        build(tiny_model, narrow)


def test_a_model_that_is_not_there_is_named(tiny_model, tmp_path):
    with pytest.raises(CheckpointError, match=r"there is no .*nothing"):
        build(tiny_model, tmp_path / "nothing")


def test_both_formats_of_a_tokenizer_spell_alike(tmp_path):
    def spec(vocabulary):
        return TokenizerSpec(vocabulary, None, None, None, None)

    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"model": {"vocab": [["a", -1.0], ["b", -2.0]]}, "added_tokens": []}))
    assert spec(path).tokens() == {0: "a", 1: "b"}
    path.write_text(json.dumps({"model": {"vocab": {"b": 1, "a": 0}}, "added_tokens": [{"id": 2, "content": "<s>"}]}))
    expected = {0: "a", 1: "b", 2: "<s>"}
    assert spec(path).tokens() == expected
    gguf = GGUFVocabulary("gpt2", "default", ["a", "b", "<s>"], [1, 1, 3], [], [], False, None)
    assert spec(gguf).tokens() == expected
