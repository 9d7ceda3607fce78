"""GGUF files: metadata, parameters as Hugging Face has them, refusals that name what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.gguf_file import GGUFFile, NumberArray, StringArray
from octavo.weights.source import CheckpointError
from octavo.weights.tokenizer_spec import GGUFVocabulary
from tests.weights.gguf_writing import Tensor, write_gguf
from tests.weights.tiny_model import tiny_config, tiny_parameters, write_tiny_gguf

ARCHITECTURES = ["llama", "qwen2", "qwen3"]


def test_metadata_of_every_type(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "all.gguf", "llama")
    numbers = {"uint8": 200, "int8": -7, "uint16": 60000, "int16": -300, "uint32": 2**32 - 1, "int32": -(2**31)}
    for kind, value in (numbers | {"uint64": 2**64 - 1, "int64": -(2**63), "float64": 1e300}).items():
        getattr(writer, f"add_{kind}")(kind, value)
    writer.add_float32("float32", 0.5)
    writer.add_bool("bool", True)
    writer.add_string("string", "안녕")
    writer.add_array("strings", ["a", "", "안녕"])
    writer.add_array("numbers", [1, -2, 3])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()

    metadata = GGUFFile(tmp_path / "all.gguf").metadata
    for kind, value in numbers.items():
        assert metadata[kind] == value
    assert (metadata["uint64"], metadata["int64"], metadata["float64"]) == (2**64 - 1, -(2**63), 1e300)
    assert (metadata["float32"], metadata["bool"], metadata["string"]) == (0.5, True, "안녕")
    assert isinstance(metadata["strings"], StringArray) and metadata["strings"].read() == ["a", "", "안녕"]
    assert isinstance(metadata["numbers"], NumberArray) and metadata["numbers"].read() == [1, -2, 3]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("tied", [True, False])
def test_parameters_and_configuration_survive(tmp_path: Path, architecture: str, tied: bool) -> None:
    config = tiny_config(architecture, tie_word_embeddings=tied)
    checkpoint = open_checkpoint(write_tiny_gguf(tmp_path / "tiny.Q8_0.gguf", config))
    assert checkpoint.config == tiny_config(
        architecture, tie_word_embeddings=tied, rms_norm_eps=float(np.float32(1e-5))
    )
    assert checkpoint.name == "tiny.Q8_0"
    assert checkpoint.size_bytes == (tmp_path / "tiny.Q8_0.gguf").stat().st_size
    expected = tiny_parameters(config)
    assert sorted(checkpoint.tensors.names()) == sorted(expected)
    for name, values in expected.items():
        assert name in checkpoint.tensors
        assert checkpoint.tensors.shape(name) == values.shape
        loaded = checkpoint.tensors.stored(name).to_float32()
        assert loaded.dtype == np.float32 and loaded.flags.c_contiguous
        np.testing.assert_array_equal(loaded, values)


def test_quantized_rows_of_q_and_k_are_put_back(tmp_path: Path) -> None:
    config = tiny_config("llama")
    stored, expected = {}, {}
    for name, gguf_name in (("q_proj", "attn_q"), ("k_proj", "attn_k")):
        values = tiny_parameters(config)[f"model.layers.1.self_attn.{name}.weight"]
        rows = gguf.dequantize(gguf.quantize(values, gguf.GGMLQuantizationType.Q8_0), gguf.GGMLQuantizationType.Q8_0)
        expected[f"model.layers.1.self_attn.{name}.weight"] = rows
        order = [head * 8 + half * 4 + i for head in range(len(values) // 8) for i in range(4) for half in (0, 1)]
        quantized = gguf.quantize(values[order], gguf.GGMLQuantizationType.Q8_0)
        stored[f"blk.1.{gguf_name}.weight"] = (quantized, gguf.GGMLQuantizationType.Q8_0)
    tensors = open_checkpoint(write_tiny_gguf(tmp_path / "tiny.gguf", config, tensors=stored)).tensors
    for name, rows in expected.items():
        np.testing.assert_array_equal(tensors.stored(name).to_float32(), rows)


def test_rope_divisors_keep_their_name(tmp_path: Path) -> None:
    config = tiny_config("llama")
    divisors = np.array([1, 1, 2, 8], np.float32)
    path = write_tiny_gguf(tmp_path / "tiny.gguf", config, tensors={"rope_freqs.weight": divisors})
    np.testing.assert_array_equal(open_checkpoint(path).tensors.stored("rope_freqs.weight").to_float32(), divisors)


def test_defaults_of_absent_keys(tmp_path: Path) -> None:
    config = tiny_config("llama", num_kv_heads=4, rope_theta=10000.0)
    metadata = {
        f"llama.{key}": None
        for key in ("attention.head_count_kv", "rope.freq_base", "attention.key_length", "attention.value_length")
    }
    opened = open_checkpoint(write_tiny_gguf(tmp_path / "tiny.gguf", config, metadata=metadata)).config
    assert (opened.num_kv_heads, opened.rope_theta, opened.head_dim) == (4, 10000.0, 8)


def test_all_end_tokens_are_found(tmp_path: Path) -> None:
    ends = {"tokenizer.ggml.eos_token_id": 7, "tokenizer.ggml.eot_token_id": 9, "tokenizer.ggml.eom_token_id": 7}
    path = write_tiny_gguf(tmp_path / "tiny.gguf", tiny_config("llama"), metadata=ends)
    assert open_checkpoint(path).eos_token_ids == (7, 9)


def test_tokenizer_spec(tmp_path: Path) -> None:
    metadata = {"tokenizer.chat_template": "{{ messages }}", "tokenizer.ggml.add_space_prefix": False}
    path = write_tiny_gguf(tmp_path / "tiny.gguf", tiny_config("llama"), metadata=metadata)
    spec = open_checkpoint(path).tokenizer_spec
    assert (spec.bos_token, spec.eos_token, spec.adds_bos) == ("<s>", "</s>", True)
    assert spec.chat_template == "{{ messages }}"
    assert isinstance(spec.vocabulary, GGUFVocabulary)
    assert spec.vocabulary.tokens[:3] == ["<unk>", "<s>", "</s>"] and spec.vocabulary.unk_token_id == 0
    assert not spec.vocabulary.adds_space_prefix


IQ2 = (np.zeros((340, 66), np.uint8), gguf.GGMLQuantizationType.IQ2_XXS)


@pytest.mark.parametrize(
    ("metadata", "tensors", "message"),
    [
        (
            {"general.architecture": "mamba"},
            {},
            "architecture 'mamba' is not supported; octavo runs llama, qwen2, qwen3",
        ),
        ({}, {"token_embd.weight": IQ2}, "token_embd.weight is of type IQ2_XXS; octavo reads F32"),
        ({}, {"token_embd.weight": None}, "the embedding, token_embd.weight, is missing"),
        ({}, {"blk.1.ffn_up.weight": None}, r"model\.layers\.1\.mlp\.up_proj\.weight is missing"),
        ({}, {"blk.0.ffn_gate_inp.weight": np.zeros((4, 4), np.float32)}, "holds blk.0.ffn_gate_inp.weight, which"),
        ({}, {"blk.0.attn_q.bias": np.zeros(32, np.float32)}, r"k_proj\.bias is missing"),
        ({}, {"output_norm.weight": np.zeros(33, np.float32)}, r"shape \(33,\); the configuration says \(32,\)"),
        ({"split.count": 3}, {}, "llama-gguf-split --merge"),
        ({"llama.rope.scaling.type": "yarn"}, {}, "rope scaling 'yarn' is not supported"),
        ({"llama.rope.dimension_count": 4}, {}, "rope.dimension_count is 4"),
        ({"llama.attention.head_count": 0}, {}, "attention.head_count is 0; it must be at least 1"),
        ({"llama.attention.head_count": [4, 4]}, {}, "attention.head_count is .* must be of type int"),
        ({"llama.attention.head_count_kv": 3}, {}, "4 heads cannot share 3 KV heads"),
        ({"llama.block_count": 4_000_000_000}, {}, r"model\.layers\.2\..* is missing"),
        ({"llama.block_count": 1}, {}, r"holds model\.layers\.1\."),
        ({"llama.rope.freq_base": float("nan")}, {}, "rope.freq_base is nan"),
        ({"llama.embedding_length": "32"}, {}, "embedding_length is '32'; it must be of type int"),
        ({"general.alignment": 7}, {}, "alignment is 7"),
        ({"tokenizer.ggml.eos_token_id": 5000}, {}, "eos_token_id is 5000; the vocabulary has 340 tokens"),
    ],
)
def test_refusals_name_what_is_wrong(
    tmp_path: Path, metadata: dict[str, Any], tensors: dict[str, Tensor | None], message: str
) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", tiny_config("llama"), metadata=metadata, tensors=tensors)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(path)


def test_a_missing_parameter_is_named(tmp_path: Path) -> None:
    tensors = open_checkpoint(write_tiny_gguf(tmp_path / "tiny.gguf", tiny_config("llama"))).tensors
    assert "model.nothing" not in tensors
    with pytest.raises(CheckpointError, match=r"holds no parameter model\.nothing"):
        tensors.stored("model.nothing")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cannot read .* empty file"),
        (b"GG", "4 bytes are announced at byte 0, the file has 2"),
        (b"PK\x03\x04" + bytes(60), "not a GGUF file"),
        (b"GGUF\x01\0\0\0" + bytes(60), "GGUF version 1 is not supported"),
        (b"GGUF\0\0\0\x03" + bytes(60), "GGUF version 50331648 is not supported; octavo reads little-endian"),
        (b"GGUF\x03\0\0\0" + b"\xff" * 16, "18446744073709551615 items are announced"),
    ],
)
def test_what_is_not_gguf_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(path)


@pytest.mark.parametrize("value", [b"\x09\0\0\0\x04\0\0\0" + b"\xff" * 8, b"\x08\0\0\0" + b"\xff" * 8, b"\x2a\0\0\0"])
def test_a_metadata_value_larger_than_the_file_is_refused(tmp_path: Path, value: bytes) -> None:
    path = tmp_path / "bad.gguf"
    key = (1).to_bytes(8, "little") + b"k"
    path.write_bytes(b"GGUF\x03\0\0\0" + bytes(8) + (1).to_bytes(8, "little") + key + value + bytes(32))
    with pytest.raises(CheckpointError, match=r"damaged|does not define"):
        open_checkpoint(path)


def test_a_string_of_an_array_does_not_end_past_the_file(tmp_path: Path) -> None:
    number = [n.to_bytes(8, "little") for n in range(10)]
    strings = b"\x09\0\0\0" + b"\x08\0\0\0" + number[1] + number[5] + b"1234"
    (tmp_path / "bad.gguf").write_bytes(b"GGUF\x03\0\0\0" + number[0] + number[1] + number[1] + b"k" + strings)
    with pytest.raises(CheckpointError, match="an array of strings ends past the end of the file"):
        GGUFFile(tmp_path / "bad.gguf")


def test_version_2_is_read(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", tiny_config("qwen2"))
    data = bytearray(path.read_bytes())
    data[4] = 2
    path.write_bytes(data)
    assert open_checkpoint(path).config.architecture == "qwen2"


def test_a_file_without_tensors_has_metadata(tmp_path: Path) -> None:
    file = GGUFFile(write_gguf(tmp_path / "empty.gguf", {"a": 1}))
    assert file.tensors == {} and file.metadata["a"] == 1


@pytest.mark.model
def test_the_demo_model(demo_model_path: Path) -> None:
    checkpoint = open_checkpoint(demo_model_path)
    config = checkpoint.config
    assert (config.architecture, config.num_layers, config.num_heads, config.num_kv_heads) == ("llama", 30, 9, 3)
    assert config.tie_word_embeddings and not config.has_qkv_bias
    assert checkpoint.eos_token_ids == (2,)
    assert checkpoint.tensors.stored("model.layers.29.self_attn.k_proj.weight").to_float32().shape == (192, 576)
