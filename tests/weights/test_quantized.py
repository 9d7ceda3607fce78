"""Quantized checkpoints as people have them: some layers quantized, some not, and what cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from octavo.quantization.awq import COLUMN_OF_NIBBLE, pack_columns
from octavo.weights.checkpoint import Checkpoint, open_checkpoint
from octavo.weights.source import CheckpointError
from tests.weights.tiny_model import hf_config, tiny_config, tiny_parameters

ZEROS = (0, 7, 8, 15)
AWQ: dict[str, Any] = {"quant_method": "awq", "bits": 4, "group_size": 8, "version": "gemm"}
GPTQ: dict[str, Any] = {"quant_method": "gptq", "bits": 4, "group_size": 8, "desc_act": False}


def by_hand(columns: list[int]) -> int:
    """Eight numbers of four bits in a word, the first of them lowest."""
    return int(np.array(sum(code << 4 * i for i, code in enumerate(columns)), np.uint32).view(np.int32))


def layer_by_hand(method: str, stored_zero: int) -> dict[str, np.ndarray]:
    """16 x 16 codes 0 ... 15 in each row of inputs, groups of 8 inputs, all zero points stored as this number."""
    rows = [list(range(16))] * 16  # [K][N]
    scales = np.linspace(0.5, 1.5, 32, dtype=np.float16).reshape(2, 16)
    if method == "awq":
        order = list(COLUMN_OF_NIBBLE)
        words = [[by_hand([row[start + i] for i in order]) for start in (0, 8)] for row in rows]
    else:
        words = [[by_hand([rows[start + i][n] for i in range(8)]) for n in range(16)] for start in (0, 8)]
    layer: dict[str, np.ndarray] = {
        "qweight": np.array(words, np.int32),
        "qzeros": np.full((2, 2), by_hand([stored_zero] * 8), np.int32),
        "scales": scales,
    }
    return layer if method == "awq" else layer | {"g_idx": np.arange(16, dtype=np.int32) // 8}


def write_folder(folder: Path, quantization: dict[str, Any] | None, changes: dict[str, Any]) -> Path:
    """A tiny model whose layers are 16 wide, with these tensors instead of its own; None: left out."""
    config = tiny_config("llama", hidden_size=16, intermediate_size=16, num_kv_heads=4, head_dim=4, num_layers=1)
    tensors = tiny_parameters(config) | changes
    folder.mkdir(exist_ok=True)
    extra = {} if quantization is None else {"quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(hf_config(config, **extra)))
    save_file({name: t for name, t in tensors.items() if t is not None}, folder / "model.safetensors")
    return folder


def open_with(folder: Path, quantization: dict[str, Any] | None, layer: dict[str, Any], **changes: Any) -> Checkpoint:
    """The model with `layer` in the place of its o_proj."""
    prefix = "model.layers.0.self_attn.o_proj."
    named = {prefix + part: tensor for part, tensor in layer.items()}
    return open_checkpoint(write_folder(folder, quantization, {prefix + "weight": None} | named | changes))


@pytest.mark.parametrize("zero", ZEROS)
@pytest.mark.parametrize(
    ("config", "stored_zero"),
    [
        (AWQ, lambda zero: zero),
        (GPTQ, lambda zero: zero - 1 & 15),
        (GPTQ | {"checkpoint_format": "gptq"}, lambda zero: zero - 1 & 15),
        (GPTQ | {"checkpoint_format": "gptq_v2"}, lambda zero: zero),
    ],
    ids=["awq", "gptq", "gptq-v1", "gptq-v2"],
)
def test_zero_points_and_columns_packed_by_hand(tmp_path, config, stored_zero, zero):
    layer = layer_by_hand(config["quant_method"], stored_zero(zero))
    checkpoint = open_with(tmp_path, config, layer)
    name = "model.layers.0.self_attn.o_proj.weight"
    scales = np.repeat(layer["scales"].astype(np.float32), 8, axis=0)  # [K, N]
    expected = ((np.arange(16, dtype=np.float32) - zero) * scales).T
    assert np.array_equal(checkpoint.tensors.stored(name).to_float32(), expected)
    assert checkpoint.quantization == config["quant_method"]


def test_layers_that_are_not_quantized_stay_as_they_are(tmp_path):
    checkpoint = open_with(tmp_path, AWQ | {"modules_to_not_convert": ["q_proj"]}, layer_by_hand("awq", 8))
    stored = checkpoint.tensors.stored("model.layers.0.self_attn.q_proj.weight")
    assert (stored.format, stored.scales) == ("F32", None)
    assert checkpoint.tensors.stored("model.layers.0.self_attn.o_proj.weight").format == "TABLE"  # groups of 8


def test_packing_columns_is_undone_by_unpacking(tmp_path):
    codes = np.random.default_rng(0).integers(0, 16, (16, 16)).astype(np.uint8)
    layer = layer_by_hand("awq", 8) | {"qweight": pack_columns(codes), "scales": np.ones((2, 16), np.float16)}
    weight = open_with(tmp_path, AWQ, layer).tensors.stored("model.layers.0.self_attn.o_proj.weight").to_float32()
    assert np.array_equal(weight, codes.T.astype(np.float32) - 8)


@pytest.mark.parametrize(
    ("config", "layer", "message"),
    [
        (GPTQ, layer_by_hand("awq", 8) | {"g_idx": np.zeros(16, np.int32)}, "lies as AWQ lays it, .*says GPTQ"),
        (AWQ, layer_by_hand("gptq", 8), "lies as GPTQ lays it"),
        (GPTQ | {"bits": 8}, layer_by_hand("gptq", 8), "configuration says 8 bits"),
        (None, layer_by_hand("awq", 8), "packed weights.*no quantization_config"),
        (AWQ, {"qweight": np.zeros((16, 2), np.int32)}, "there is no scales beside qweight"),
        (AWQ, layer_by_hand("awq", 8) | {"scales": np.ones((3, 16), np.float16)}, "do not fit together"),
        (AWQ, layer_by_hand("awq", 8) | {"qweight": np.zeros((15, 2), np.int32)}, "15 inputs are not 2 groups"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused(tmp_path, config, layer, message):
    with pytest.raises(CheckpointError, match=message):
        open_with(tmp_path, config, layer)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (layer_by_hand("gptq", 8) | {"g_idx": np.full(16, 7, np.int32)}, "g_idx does not put 16 columns into 2 groups"),
        (layer_by_hand("gptq", 8) | {"scales": np.full((2, 16), np.inf, np.float16)}, "a scale is infinite"),
    ],
)
def test_what_is_damaged_is_refused_when_it_is_read(tmp_path, layer, message):
    checkpoint = open_with(tmp_path, GPTQ, layer)
    with pytest.raises(CheckpointError, match=rf"o_proj.weight: {message}.*the file is damaged"):
        checkpoint.tensors.stored("model.layers.0.self_attn.o_proj.weight")
