"""Quantized checkpoints: what is written is read again, and computes nearly what the original does."""

from __future__ import annotations

import json

import numpy as np
import pytest

from octavo.backends.native.backend import NativeBackend
from octavo.compression.awq_search import clip_weights, quantize, search_scales
from octavo.compression.calibration import _one_sequence
from octavo.compression.quantizer import write_awq, write_int8
from octavo.models.registry import build_model
from octavo.weights.checkpoint import open_checkpoint
from octavo.worker.kv_cache import kv_shape
from tests.weights.tiny_model import gguf_tensors, tiny_config, tiny_parameters, write_tiny_gguf

TEXT = "the quick brown fox " * 8


def logits(checkpoint):
    """Of every token of a prompt, in float32."""
    backend = NativeBackend(1, dtype="float32")
    model = build_model(checkpoint.config, checkpoint.tensors, backend, 64)
    step = backend.prepare(model, backend.allocate_kv(kv_shape(checkpoint.config, 4, "float32")))
    return np.concatenate([step.run(_one_sequence(list(range(5, 5 + n)))) for n in range(1, 40)])


@pytest.fixture(scope="module", params=[("llama", 4), ("llama", 2), ("qwen2", 4), ("qwen3", 2)], ids=str)
def original(request, tmp_path_factory):
    architecture, num_kv_heads = request.param
    config = tiny_config(architecture, hidden_size=64, num_kv_heads=num_kv_heads)
    path = tmp_path_factory.mktemp("original") / "tiny.gguf"
    scaled = {name: values / 8 if values.ndim == 2 else values for name, values in tiny_parameters(config).items()}
    return open_checkpoint(write_tiny_gguf(path, config, tensors=gguf_tensors(config, scaled)))


@pytest.mark.parametrize(("name", "quantization", "most"), [("awq", "awq", 0.5), ("int8", "compressed-tensors", 0.1)])
def test_a_quantized_checkpoint_computes_nearly_the_same(original, tmp_path, name, quantization, most):
    done: list[int] = []
    if name == "awq":
        write_awq(original, tmp_path, TEXT, done.append)
        assert done == [0, 1]
    else:
        write_int8(original, tmp_path)
    quantized = open_checkpoint(tmp_path)
    assert quantized.quantization == quantization
    assert quantized.config == original.config
    assert quantized.eos_token_ids == original.eos_token_ids
    assert quantized.vocab_size == original.vocab_size
    assert quantized.tokenizer_spec.bos_token == original.tokenizer_spec.bos_token
    exact, near = logits(original), logits(quantized)
    error = np.sqrt(np.square(near - exact).mean() / np.square(exact).mean())
    assert 0 < error < most
    assert quantized.tensors.stored("model.layers.0.mlp.down_proj.weight").format == ("I4" if name == "awq" else "I8")
    assert "torch_dtype" in json.loads((tmp_path / "config.json").read_text())


def test_a_folder_in_use_is_left_alone(original, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="is not empty; name another folder"):
        write_int8(original, tmp_path)


def output_error(x, weight, other):
    return np.square(x @ (weight - other).T).mean()


def test_inputs_that_are_large_keep_their_precision():
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((64, 128)).astype(np.float32)
    x = rng.standard_normal((200, 128)).astype(np.float32)
    x[:, ::37] *= 40
    scales = search_scales(x, [weight[:40], weight[40:]], 32)
    plain = output_error(x, weight, quantize(weight, 32).numbers())
    assert output_error(x, weight, quantize(weight * scales, 32).numbers() / scales) < plain / 2


def test_clipping_lowers_the_error_of_the_outputs():
    rng = np.random.default_rng(1)
    weight = rng.standard_normal((64, 128)).astype(np.float32)
    weight[:, ::64] *= 6
    x = rng.standard_normal((200, 128)).astype(np.float32)
    x[:, ::64] /= 50  # large weights whose inputs are small
    clipped = quantize(clip_weights(x, weight, 32), 32).numbers()
    assert output_error(x, weight, clipped) < output_error(x, weight, quantize(weight, 32).numbers()) * 0.9


def test_quantized_numbers_are_the_nearest():
    weight = np.random.default_rng(2).standard_normal((8, 64)).astype(np.float32)
    quantized = quantize(weight, 32)
    step = np.repeat(quantized.scales.astype(np.float32), 32, axis=1)
    assert (np.abs(quantized.numbers() - weight) <= step * 0.51 + 1e-6).mean() > 0.99  # a zero point is rounded, too
    assert (np.abs(quantized.numbers() - weight) <= step * 1.01).all()
