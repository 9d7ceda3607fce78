"""A tiny random model, written as a GGUF file or as a Hugging Face folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import save_file

from octavo.config import ModelConfig
from tests.engine.small_tokenizers import sentencepiece_metadata
from tests.weights.gguf_writing import Tensor, write_gguf

VOCAB_SIZE = 340
GGUF_ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
}


def tiny_config(architecture: str, **changes: Any) -> ModelConfig:
    """4 heads share 2 KV heads."""
    fields: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 16 if architecture == "qwen3" else 8,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 50000.0,
        "has_qkv_bias": architecture == "qwen2",
    }
    return ModelConfig(architecture=architecture, **fields | changes)


def tiny_parameters(config: ModelConfig) -> dict[str, np.ndarray]:
    """Random values under Hugging Face names."""
    hidden, inner = config.hidden_size, config.intermediate_size
    q_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}."
        shapes |= {
            f"{prefix}input_layernorm.weight": (hidden,),
            f"{prefix}post_attention_layernorm.weight": (hidden,),
            f"{prefix}self_attn.q_proj.weight": (q_size, hidden),
            f"{prefix}self_attn.k_proj.weight": (kv_size, hidden),
            f"{prefix}self_attn.v_proj.weight": (kv_size, hidden),
            f"{prefix}self_attn.o_proj.weight": (hidden, q_size),
            f"{prefix}mlp.gate_proj.weight": (inner, hidden),
            f"{prefix}mlp.up_proj.weight": (inner, hidden),
            f"{prefix}mlp.down_proj.weight": (hidden, inner),
        }
        if config.has_qkv_bias:
            shapes |= {f"{prefix}self_attn.{p}_proj.bias": (q_size if p == "q" else kv_size,) for p in "qkv"}
        if config.architecture == "qwen3":
            shapes |= {f"{prefix}self_attn.{p}_norm.weight": (config.head_dim,) for p in "qk"}
    rng = np.random.default_rng(7)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def gguf_metadata(config: ModelConfig) -> dict[str, Any]:
    """What a converted model says about itself."""
    values = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_layers,
        "feed_forward_length": config.intermediate_size,
        "rope.dimension_count": config.head_dim,
        "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.num_kv_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "rope.freq_base": config.rope_theta,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
    }
    prefixed = {f"{config.architecture}.{key}": value for key, value in values.items()}
    return {"general.architecture": config.architecture} | prefixed | sentencepiece_metadata()


def gguf_tensors(config: ModelConfig, parameters: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """The parameters as convert_hf_to_gguf names and orders them."""
    names = gguf.get_tensor_name_map(GGUF_ARCHITECTURES[config.architecture], config.num_layers)
    tensors: dict[str, Tensor] = {}
    for name, values in parameters.items():
        gguf_name = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert gguf_name is not None
        tensors[gguf_name] = values
        if config.architecture == "llama" and (".q_proj." in name or ".k_proj." in name):
            num_heads = config.num_heads if ".q_proj." in name else config.num_kv_heads
            pairs = values.reshape(num_heads, 2, config.head_dim // 2, *values.shape[1:])
            tensors[gguf_name] = np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)
    return tensors


def write_tiny_gguf(
    path: Path,
    config: ModelConfig,
    *,
    metadata: Mapping[str, Any] | None = None,
    tensors: Mapping[str, Tensor | None] | None = None,
) -> Path:
    """Write the model with these changes; a tensor of None is left out. Returns the path."""
    all_tensors = gguf_tensors(config, tiny_parameters(config)) | dict(tensors or {})
    kept = {name: tensor for name, tensor in all_tensors.items() if tensor is not None}
    return write_gguf(path, gguf_metadata(config) | dict(metadata or {}), kept)


def hf_config(config: ModelConfig, **changes: Any) -> dict[str, Any]:
    """config.json as transformers writes it."""
    class_names = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
    return {
        "architectures": [class_names[config.architecture]],
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
        "eos_token_id": 2,
    } | changes


def write_tiny_folder(folder: Path, config: ModelConfig, **changes: Any) -> Path:
    """Write the model as a Hugging Face folder, with these changes to config.json. Returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(hf_config(config, **changes)))
    save_file(tiny_parameters(config), folder / "model.safetensors")
    return folder
