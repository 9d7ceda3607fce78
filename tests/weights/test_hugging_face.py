"""Hugging Face folders and repositories: configuration, parameters, tokenizer files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
from safetensors.numpy import save_file

from octavo.config import RopeScaling
from octavo.weights import hugging_face
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.source import CheckpointError
from tests.weights.tiny_model import tiny_config, tiny_parameters, write_tiny_folder

LLAMA_3_SCALING = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
SCALING = RopeScaling(8.0, 1.0, 4.0, 64)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_parameters_and_configuration_survive(tmp_path: Path, architecture: str, tied: bool) -> None:
    config = tiny_config(architecture, tie_word_embeddings=tied)
    checkpoint = open_checkpoint(write_tiny_folder(tmp_path / "tiny-model", config))
    assert checkpoint.config == config
    assert checkpoint.name == "tiny-model"
    assert checkpoint.size_bytes == (tmp_path / "tiny-model" / "model.safetensors").stat().st_size
    for name, values in tiny_parameters(config).items():
        np.testing.assert_array_equal(checkpoint.tensors.stored(name).to_float32(), values)


@pytest.mark.parametrize(
    ("changes", "theta", "scaling"),
    [
        ({"rope_scaling": None}, 50000.0, None),
        ({"rope_theta": None}, 10000.0, None),
        ({"rope_theta": 1000000}, 1000000.0, None),
        ({"rope_scaling": {"rope_type": "default"}}, 50000.0, None),
        ({"rope_scaling": {"rope_type": "llama3", **LLAMA_3_SCALING}}, 50000.0, SCALING),
        ({"rope_scaling": {"type": "llama3", **LLAMA_3_SCALING}}, 50000.0, SCALING),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 7.5}, "rope_theta": None}, 7.5, None),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 7.5, **LLAMA_3_SCALING}}, 7.5, SCALING),
    ],
)
def test_rope(tmp_path: Path, changes: dict[str, Any], theta: float, scaling: RopeScaling | None) -> None:
    opened = open_checkpoint(write_tiny_folder(tmp_path, tiny_config("llama"), **changes)).config
    assert (opened.rope_theta, opened.rope_scaling) == (theta, scaling)


def test_defaults_of_absent_keys(tmp_path: Path) -> None:
    config = tiny_config("llama", num_kv_heads=4)
    changes = dict.fromkeys(["head_dim", "num_key_value_heads", "rms_norm_eps", "tie_word_embeddings", "hidden_act"])
    opened = open_checkpoint(write_tiny_folder(tmp_path, config, **changes)).config
    assert (opened.head_dim, opened.num_kv_heads, opened.rms_norm_eps) == (8, 4, 1e-6)


def test_a_qwen3_with_biases(tmp_path: Path) -> None:
    config = tiny_config("qwen3", has_qkv_bias=True)
    assert open_checkpoint(write_tiny_folder(tmp_path, config, attention_bias=True)).config.has_qkv_bias


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "'MambaForCausalLM' is not supported; octavo runs LlamaForCausalLM"),
        ({"architectures": None}, "architecture '' is not supported"),
        (
            {"quantization_config": {"quant_method": "quip"}},
            "quant_method 'quip' is not supported; octavo reads awq, gptq",
        ),
        ({"quantization_config": {"quant_method": "awq", "version": "gemv"}}, "version is 'gemv'; octavo reads gemm"),
        ({"quantization_config": {"quant_method": "awq", "w_bit": 3}}, "w_bit is 3; octavo reads 4"),
        (
            {"quantization_config": {"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}},
            "checkpoint_format is 'marlin'; octavo reads gptq, gptq_v2",
        ),
        (
            {"quantization_config": {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}},
            "format is 'nvfp4-pack-quantized'; octavo reads pack-quantized",
        ),
        (
            {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 0]}},
            r"weight_block_size is \[128, 0\]; it must be two numbers above 0",
        ),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope type 'yarn' is not supported"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "factor is missing"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
        ({"use_sliding_window": True}, "use_sliding_window is not supported"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0; it must be at least 1"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True; it must be of type int"),
        ({"rms_norm_eps": 0.0}, "rms_norm_eps is 0.0; it must be a finite number above 0"),
        ({"attention_bias": True}, r"q_proj\.bias is missing"),
        ({"vocab_size": 341}, r"embed_tokens\.weight has shape \(340, 32\); the configuration says \(341, 32\)"),
    ],
)
def test_refusals_name_what_is_wrong(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(write_tiny_folder(tmp_path, tiny_config("llama"), **changes))


def test_an_output_bias_is_not_dropped_silently(tmp_path: Path) -> None:
    config = tiny_config("llama")
    write_tiny_folder(tmp_path, config)
    extra = {f"model.layers.{layer}.self_attn.o_proj.bias": np.zeros(32, np.float32) for layer in (0, 1)}
    save_file(tiny_parameters(config) | extra, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"holds model\.layers\.0\.self_attn\.o_proj\.bias, which"):
        open_checkpoint(tmp_path)


def test_copies_and_buffers_that_tools_write_are_ignored(tmp_path: Path) -> None:
    config = tiny_config("llama", tie_word_embeddings=True)
    write_tiny_folder(tmp_path, config)
    parameters = tiny_parameters(config)
    parameters["lm_head.weight"] = parameters["model.embed_tokens.weight"].copy()
    parameters["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(4, np.float32)
    save_file(parameters, tmp_path / "model.safetensors")
    assert open_checkpoint(tmp_path).config.tie_word_embeddings


def write_shards(folder: Path, names: tuple[str, str]) -> None:
    """Split model.safetensors into two files and an index."""
    config = tiny_config("llama")
    write_tiny_folder(folder, config)
    (folder / "model.safetensors").unlink()
    parameters = tiny_parameters(config)
    weight_map = {name: names[i % 2] for i, name in enumerate(parameters)}
    for shard in names:
        path = folder / Path(shard).name
        save_file({name: parameters[name] for name, place in weight_map.items() if place == shard}, path)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_parameters_in_several_files(tmp_path: Path) -> None:
    write_shards(tmp_path, ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"))
    checkpoint = open_checkpoint(tmp_path)
    for name, values in tiny_parameters(tiny_config("llama")).items():
        np.testing.assert_array_equal(checkpoint.tensors.stored(name).to_float32(), values)
    assert checkpoint.size_bytes == sum(path.stat().st_size for path in tmp_path.glob("*.safetensors"))


def test_an_index_does_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    write_shards(tmp_path / "model", ("a.safetensors", "../b.safetensors"))
    with pytest.raises(CheckpointError, match=r"'\.\./b\.safetensors' is not the name of a file in the same folder"):
        open_checkpoint(tmp_path / "model")


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    write_shards(tmp_path, ("a.safetensors", "b.safetensors"))
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"cannot read .*b\.safetensors"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("generation_config", "config", "expected"),
    [
        ({"eos_token_id": [5, 6]}, 2, (5, 6)),
        ({"eos_token_id": 5}, 2, (5,)),
        ({"eos_token_id": None}, 2, (2,)),
        (None, [3, 4], (3, 4)),
        (None, None, ()),
    ],
)
def test_end_tokens(tmp_path: Path, generation_config: Any, config: Any, expected: tuple[int, ...]) -> None:
    write_tiny_folder(tmp_path, tiny_config("llama"), eos_token_id=config)
    if generation_config is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation_config))
    assert open_checkpoint(tmp_path).eos_token_ids == expected


def test_end_tokens_must_be_ids(tmp_path: Path) -> None:
    write_tiny_folder(tmp_path, tiny_config("llama"), eos_token_id=["</s>"])
    with pytest.raises(CheckpointError, match=r"eos_token_id is '</s>'; it must be of type int"):
        open_checkpoint(tmp_path)


TEMPLATES = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]


@pytest.mark.parametrize(
    ("tokenizer_config", "jinja", "template"),
    [
        ({"chat_template": "C"}, None, "C"),
        ({"chat_template": TEMPLATES}, None, "D"),
        ({"chat_template": TEMPLATES[:1]}, None, None),
        ({"chat_template": "C"}, "J", "J"),
        ({}, None, None),
        (None, "J", "J"),
    ],
)
def test_chat_template(tmp_path: Path, tokenizer_config: Any, jinja: str | None, template: str | None) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    if tokenizer_config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    if jinja is not None:
        (tmp_path / "chat_template.jinja").write_text(jinja)
    assert hugging_face.read_tokenizer_spec(tmp_path).chat_template == template


def test_a_damaged_chat_template_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(CheckpointError, match=r"cannot read .*chat_template\.jinja"):
        hugging_face.read_tokenizer_spec(tmp_path)


def test_special_tokens_as_strings_or_objects(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    tokens = {"bos_token": {"content": "<s>", "lstrip": False}, "eos_token": "</s>", "add_bos_token": False}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokens))
    spec = hugging_face.read_tokenizer_spec(tmp_path)
    assert (spec.bos_token, spec.eos_token, spec.adds_bos) == ("<s>", "</s>", False)
    assert spec.vocabulary == tmp_path / "tokenizer.json"


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_tiny_folder(tmp_path, tiny_config("llama")))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is missing"):
        _ = checkpoint.tokenizer_spec
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is missing"):
        _ = checkpoint.vocab_size


@pytest.mark.parametrize(
    ("tokenizer", "vocab_size"),
    [
        ({"model": {"type": "BPE", "vocab": {"a": 0, "b": 7}, "merges": [["a", "b"]]}}, 8),
        ({"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 3, "content": "<s>"}, {"id": 2, "content": "x"}]}, 4),
        ({"model": {"type": "Unigram", "vocab": [["a", -1.5], ["b", -2.0]]}, "added_tokens": [{"id": 0}]}, 2),
        ({"model": {"vocab": {}}}, 0),
    ],
)
def test_the_size_of_a_vocabulary(tmp_path: Path, tokenizer: Any, vocab_size: int) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert hugging_face.read_vocab_size(tmp_path) == vocab_size


@pytest.mark.parametrize("text", ["", "[]", '{"model": {"vocab": 5}}', '{"model": {"vocab": {"a": "b"}}}'])
def test_a_damaged_vocabulary_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is not a tokenizer"):
        hugging_face.read_vocab_size(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", '"x"', "\ud800".encode("utf-8", "surrogatepass"), "[" * 100_000])
def test_a_damaged_config_is_one_clear_error(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CheckpointError, match=r"config\.json"):
        open_checkpoint(tmp_path)


def test_a_folder_with_gguf_files_points_to_them(tmp_path: Path) -> None:
    (tmp_path / "some.gguf").touch()
    with pytest.raises(CheckpointError, match=r"name the file itself \(some\.gguf\)"):
        open_checkpoint(tmp_path)


def test_a_folder_without_safetensors_says_what_is_read(tmp_path: Path) -> None:
    write_tiny_folder(tmp_path, tiny_config("llama"))
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="octavo reads safetensors or GGUF"):
        open_checkpoint(tmp_path)


NOWHERE = [
    "nowhere.gguf",
    "/no/such/folder",
    Path("org/model"),
    "a/b/c",
    "./model",
    "../m",
    "./m.gguf",
    "models/m.gguf",
]


@pytest.mark.parametrize("path", NOWHERE)
def test_nothing_there(path: str | Path) -> None:
    with pytest.raises(CheckpointError, match=r"give a \.gguf file, a Hugging Face folder or the name of"):
        open_checkpoint(path)


def test_a_repository_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config("llama")
    write_tiny_folder(tmp_path, config)
    asked = []

    def snapshot_download(name: str, *, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    checkpoint = open_checkpoint("some-org/some-model_1.5")
    assert (checkpoint.name, checkpoint.config) == ("some-org/some-model_1.5", config)
    assert asked == [("some-org/some-model_1.5", ["*.json", "*.safetensors", "*.jinja"])]


def test_a_repository_out_of_reach_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def snapshot_download(name: str, *, allow_patterns: list[str]) -> str:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(
        CheckpointError, match=r"some-org/some-model.* no route to host; check the name and the connection"
    ):
        open_checkpoint("some-org/some-model")
