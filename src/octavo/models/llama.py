"""Llama (Touvron et al. 2023; Grattafiori et al. 2024): the decoder that Qwen2 and Qwen3 are variations of."""

from __future__ import annotations

from typing import Any

from octavo.backends.ops import Array, KVCache, KVLayer, Ops
from octavo.config import ModelConfig
from octavo.layers.attention import Attention
from octavo.layers.embedding import ParallelLMHead, VocabParallelEmbedding
from octavo.layers.linear import QKVParallelLinear, RowParallelLinear
from octavo.layers.mlp import GatedMLP
from octavo.layers.norm import RMSNorm
from octavo.layers.parameters import Parameters
from octavo.layers.rotary import RotaryEmbedding


class LlamaAttention:
    """Grouped-query attention with rotary positions."""

    def __init__(self, config: ModelConfig, params: Parameters, rotary: RotaryEmbedding) -> None:
        q_size = config.num_heads * config.head_dim
        kv_size = config.num_kv_heads * config.head_dim
        self._qkv_proj = QKVParallelLinear(
            params, config.hidden_size, q_size=q_size, kv_size=kv_size, has_bias=config.has_qkv_bias
        )
        self._rotary = rotary
        self._attention = Attention(config.head_dim)
        self._o_proj = RowParallelLinear(params.at("o_proj"), q_size, config.hidden_size)

    def __call__(self, ops: Ops, x: Array, batch: Any, kv: KVLayer) -> Array:
        """[T, hidden_size] -> [T, hidden_size]."""
        q, k, v = self._qkv_proj(ops, x)
        q = self._rotary(ops, q, batch.positions)
        k = self._rotary(ops, k, batch.positions)
        return self._o_proj(ops, self._attention(ops, q, k, v, batch, kv))


class LlamaBlock:
    """Attention, then the MLP, each on the normalized input and added to it."""

    def __init__(
        self, config: ModelConfig, params: Parameters, rotary: RotaryEmbedding, attention: type[LlamaAttention]
    ) -> None:
        hidden_size, eps = config.hidden_size, config.rms_norm_eps
        self._input_layernorm = RMSNorm(params.at("input_layernorm"), hidden_size, eps)
        self._self_attn = attention(config, params.at("self_attn"), rotary)
        self._post_attention_layernorm = RMSNorm(params.at("post_attention_layernorm"), hidden_size, eps)
        self._mlp = GatedMLP(params.at("mlp"), hidden_size, config.intermediate_size)

    def __call__(self, ops: Ops, x: Array, batch: Any, kv: KVLayer) -> Array:
        """[T, hidden_size] -> [T, hidden_size]."""
        x = ops.add(x, self._self_attn(ops, self._input_layernorm(ops, x), batch, kv))
        return ops.add(x, self._mlp(ops, self._post_attention_layernorm(ops, x)))


class LlamaForCausalLM:
    """Token ids in, logits out."""

    def __init__(
        self,
        config: ModelConfig,
        params: Parameters,
        rotary: RotaryEmbedding,
        attention: type[LlamaAttention] = LlamaAttention,
    ) -> None:
        vocab_size, hidden_size = config.vocab_size, config.hidden_size
        model = params.at("model")
        self._embed_tokens = VocabParallelEmbedding(model.at("embed_tokens"), vocab_size, hidden_size)
        self._layers = [
            LlamaBlock(config, model.at(f"layers.{i}"), rotary, attention) for i in range(config.num_layers)
        ]
        self._norm = RMSNorm(model.at("norm"), hidden_size, config.rms_norm_eps)
        tied_to = self._embed_tokens if config.tie_word_embeddings else None
        self._lm_head = ParallelLMHead(params.at("lm_head"), vocab_size, hidden_size, tied_to=tied_to)

    def forward(self, ops: Ops, batch: Any, kv: KVCache) -> Array:
        """Return logits [S, vocab_size] for `batch.logits_rows`."""
        x = self._embed_tokens(ops, batch.input_ids)  # [T, hidden_size]
        for block, kv_layer in zip(self._layers, kv.layers, strict=True):
            x = block(ops, x, batch, kv_layer)
        x = ops.gather_rows(x, batch.logits_rows)  # [S, hidden_size]: nobody needs the logits of the other tokens
        return self._lm_head(ops, self._norm(ops, x))
