"""A Hugging Face folder becomes the GGUF file that its conversion by llama.cpp would have become."""

from __future__ import annotations

import json

import gguf
import numpy as np
import pytest
from tokenizers import Tokenizer, models

from octavo.compression.gguf_quantizer import write_quantized_gguf
from octavo.engine.tokenizer import Tokenizer as EngineTokenizer
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.gguf_names import gguf_name, hugging_face_name
from octavo.weights.parameters import parameters
from octavo.weights.source import CheckpointError
from octavo.weights.tokenizer_spec import TokenType
from tests.compression.test_gguf_quantizer import fields
from tests.engine.small_tokenizers import byte_level_metadata, byte_level_tokenizer, sentencepiece_metadata
from tests.weights.tiny_model import tiny_config, write_tiny_folder, write_tiny_gguf

TEMPLATE = "{{ messages }} 안녕"
PADDED = 420  # rows of the embedding, more than the tokenizer has tokens


def write_folder(folder, config, **changes):
    """A tiny model with a tokenizer."""
    write_tiny_folder(folder, config, **{"eos_token_id": 0} | changes)
    byte_level_tokenizer(folder)
    settings = {"eos_token": "<|end|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="module", params=["llama", "qwen2", "qwen3"])
def converted(request, tmp_path_factory):
    """The folder, the file made of it, and the file made of its conversion."""
    config = tiny_config(request.param, hidden_size=64, vocab_size=PADDED, rms_norm_eps=2.0**-17)
    folder = tmp_path_factory.mktemp("converted")
    source = write_folder(folder / "model", config)
    metadata = dict.fromkeys(sentencepiece_metadata()) | byte_level_metadata() | {"tokenizer.chat_template": TEMPLATE}
    gguf_source = write_tiny_gguf(folder / "source.gguf", config, metadata=metadata)
    for model, name in ((source, "ours.gguf"), (gguf_source, "theirs.gguf")):
        write_quantized_gguf(str(model), folder / name, "gguf-q4_0")
    return source, folder / "ours.gguf", folder / "theirs.gguf"


def test_tensors_are_those_of_the_converted_file(converted):
    _, ours, theirs = ({t.name: t for t in gguf.GGUFReader(path).tensors} for path in (converted[1], *converted[1:]))
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert tensor.tensor_type == theirs[name].tensor_type
        np.testing.assert_array_equal(tensor.data, theirs[name].data, err_msg=name)


def test_metadata_are_those_of_the_converted_file(converted):
    ours, theirs = fields(converted[1]), fields(converted[2])
    lists = ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type")
    num_tokens = len(theirs[lists[0]][1])
    assert len(ours[lists[0]][1]) == len(ours[lists[1]][1]) == PADDED > num_tokens
    assert set(ours[lists[1]][1][num_tokens:]) == {TokenType.UNUSED}
    for name, (types, value) in theirs.items():
        assert ours[name][0] == types, name
        assert (ours[name][1][:num_tokens] if name in lists else ours[name][1]) == value, name


def test_octavo_opens_it_as_the_same_model(converted):
    folder, file = open_checkpoint(converted[0]), open_checkpoint(converted[1])
    assert file.config == folder.config
    assert (file.eos_token_ids, file.vocab_size) == (folder.eos_token_ids, folder.vocab_size)
    text = "The dragon reads 1234 books.<|end|> 안녕"
    before, after = EngineTokenizer(folder.tokenizer_spec), EngineTokenizer(file.tokenizer_spec)
    assert after.encode(text, add_special_tokens=True) == before.encode(text, add_special_tokens=True)
    assert file.tokenizer_spec.chat_template == TEMPLATE


def test_names_are_undone():
    for name, _ in parameters(tiny_config("qwen3", has_qkv_bias=True)):
        assert hugging_face_name(gguf_name(name)) == name


def test_scaled_frequencies_become_divisors(tmp_path):
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaling["original_max_position_embeddings"] = 128
    config = tiny_config("llama", hidden_size=64, vocab_size=PADDED)
    folder = write_folder(tmp_path / "model", config, rope_scaling=scaling)
    write_quantized_gguf(str(folder), tmp_path / "out.gguf", "gguf-q8_0")
    [divisors] = [t.data for t in gguf.GGUFReader(tmp_path / "out.gguf").tensors if t.name == "rope_freqs.weight"]
    # Wavelengths of 6.3, 94, 1405 and 21010 positions, beside 128: kept, in between, divided, divided.
    turns = 128 * 50000.0**-0.25 / (2 * np.pi)
    kept = (turns - 1) / 3
    np.testing.assert_allclose(divisors, [1, 1 / ((1 - kept) / 8 + kept), 8, 8], rtol=1e-5)


def test_what_gguf_cannot_describe_is_refused(tmp_path):
    config = tiny_config("llama", hidden_size=64, vocab_size=PADDED)
    folder = write_folder(tmp_path / "model", config, eos_token_id=[3, 1, 2, 0])
    with pytest.raises(ValueError, match=r"tokens \[0, 3, 1, 2\] end an answer, and GGUF has names for 3"):
        write_quantized_gguf(str(folder), tmp_path / "out.gguf", "gguf-q4_0")
    Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save(str(folder / "tokenizer.json"))
    with pytest.raises(CheckpointError, match=r"knows: smollm, qwen2.*convert_hf_to_gguf\.py --outtype bf16"):
        write_quantized_gguf(str(folder), tmp_path / "out.gguf", "gguf-q4_0")
    assert not (tmp_path / "out.gguf").exists()
