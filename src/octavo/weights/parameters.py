"""Which parameters a model has, by architecture: their Hugging Face names and shapes."""

from __future__ import annotations

from collections.abc import Iterator

from octavo.config import ModelConfig
from octavo.weights.source import ROPE_FREQS, CheckpointError, WeightSource

ARCHITECTURES = ("llama", "qwen2", "qwen3")


def check_parameters(config: ModelConfig, tensors: WeightSource) -> None:
    """Raise CheckpointError unless the checkpoint holds exactly the parameters of the model that `config` describes.

    A parameter too many matters as much as a missing one: the model would run without a part it was trained with.
    """
    unexplained = {name for name in tensors.names() if not name.endswith(".rotary_emb.inv_freq")}  # a saved buffer
    for name, shape in parameters(config):
        if name not in tensors:
            raise CheckpointError(f"parameter {name} is missing: the checkpoint is incomplete; fetch it again")
        if tensors.shape(name) != shape:
            raise CheckpointError(f"parameter {name} has shape {tensors.shape(name)}; the configuration says {shape}")
        unexplained.discard(name)
    if config.tie_word_embeddings:
        unexplained.discard("lm_head.weight")  # a copy of the embedding, which some tools write
    if ROPE_FREQS in unexplained and tensors.shape(ROPE_FREQS) == (config.head_dim // 2,):
        unexplained.discard(ROPE_FREQS)
    if unexplained:
        raise CheckpointError(
            f"the checkpoint holds {min(unexplained)}, which octavo's {config.architecture} models do not have: "
            "this variant of the architecture is not supported"
        )


def parameters(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every parameter of the model."""
    hidden = config.hidden_size
    yield "model.embed_tokens.weight", (config.vocab_size, hidden)
    for layer in range(config.num_layers):
        for name, shape in _layer_parameters(config):
            yield f"model.layers.{layer}.{name}", shape
    yield "model.norm.weight", (hidden,)
    if not config.tie_word_embeddings:
        yield "lm_head.weight", (config.vocab_size, hidden)


def _layer_parameters(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    q_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    yield "input_layernorm.weight", (hidden,)
    for projection, size in (("q_proj", q_size), ("k_proj", kv_size), ("v_proj", kv_size)):
        yield f"self_attn.{projection}.weight", (size, hidden)
        if config.has_qkv_bias:
            yield f"self_attn.{projection}.bias", (size,)
    if config.architecture == "qwen3":
        yield "self_attn.q_norm.weight", (config.head_dim,)
        yield "self_attn.k_norm.weight", (config.head_dim,)
    yield "self_attn.o_proj.weight", (hidden, q_size)
    yield "post_attention_layernorm.weight", (hidden,)
    yield "mlp.gate_proj.weight", (inner, hidden)
    yield "mlp.up_proj.weight", (inner, hidden)
    yield "mlp.down_proj.weight", (hidden, inner)
