"""Writes a checkpoint as a Hugging Face folder, from whatever octavo opened it as."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.engine.gguf_tokenizer import build_gguf_tokenizer
from octavo.weights.checkpoint import Checkpoint
from octavo.weights.hugging_face import ARCHITECTURE_BY_CLASS

_CLASSES = {architecture: class_name for class_name, architecture in ARCHITECTURE_BY_CLASS.items()}
_DTYPES = {"float32": "F32", "float16": "F16", "int8": "I8", "int32": "I32"}


def write_folder(
    folder: Path, checkpoint: Checkpoint, tensors: Mapping[str, NDArray], quantization_config: Mapping[str, Any]
) -> None:
    """Write configuration, tokenizer and tensors. Raises FileExistsError for a folder that has something in it."""
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; name another folder, or delete it")
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", _config(checkpoint) | {"quantization_config": dict(quantization_config)})
    defaults = {{"max_tokens": "max_new_tokens"}.get(name, name): v for name, v in checkpoint.sampling_defaults.items()}
    _write_json(folder / "generation_config.json", {"eos_token_id": list(checkpoint.eos_token_ids), **defaults})
    _write_tokenizer(folder, checkpoint)
    _write_safetensors(folder / "model.safetensors", tensors)


def _config(checkpoint: Checkpoint) -> dict[str, Any]:
    """What weights.hugging_face.read_config reads."""
    config = checkpoint.config
    values: dict[str, Any] = {
        "architectures": [_CLASSES[config.architecture]],
        "model_type": config.architecture,
        "torch_dtype": "float16",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_position_embeddings,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": config.tie_word_embeddings,
        "hidden_act": "silu",
        "eos_token_id": list(checkpoint.eos_token_ids),
    }
    if config.architecture != "qwen2":
        values["attention_bias"] = config.has_qkv_bias
    if scaling := config.rope_scaling:
        names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
        values["rope_scaling"] = {"rope_type": "llama3"} | {name: getattr(scaling, name) for name in names}
    return values


def _write_tokenizer(folder: Path, checkpoint: Checkpoint) -> None:
    spec = checkpoint.tokenizer_spec
    if isinstance(spec.vocabulary, Path):
        shutil.copy(spec.vocabulary, folder / "tokenizer.json")
    else:
        build_gguf_tokenizer(spec.vocabulary).save(str(folder / "tokenizer.json"))
    values = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": spec.bos_token,
        "eos_token": spec.eos_token,
        "add_bos_token": spec.adds_bos,
        "chat_template": spec.chat_template,
    }
    _write_json(folder / "tokenizer_config.json", {name: v for name, v in values.items() if v is not None})


def _write_safetensors(path: Path, tensors: Mapping[str, NDArray]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": _DTYPES[tensor.dtype.name], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)  # tensors begin at a multiple of 8
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor).tobytes())


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")
