"""Qwen3 (Yang et al. 2025): Llama whose queries and keys are normalized, head by head, before they are rotated."""

from __future__ import annotations

from typing import Any

from octavo.backends.ops import Array, KVLayer, Ops
from octavo.config import ModelConfig
from octavo.layers.norm import RMSNorm
from octavo.layers.parameters import Parameters
from octavo.layers.rotary import RotaryEmbedding
from octavo.models.llama import LlamaAttention, LlamaForCausalLM


class Qwen3Attention(LlamaAttention):
    """Llama's, with norms for queries and keys."""

    def __init__(self, config: ModelConfig, params: Parameters, rotary: RotaryEmbedding) -> None:
        super().__init__(config, params, rotary)
        self._q_norm = RMSNorm(params.at("q_norm"), config.head_dim, config.rms_norm_eps)
        self._k_norm = RMSNorm(params.at("k_norm"), config.head_dim, config.rms_norm_eps)

    def __call__(self, ops: Ops, x: Array, batch: Any, kv: KVLayer) -> Array:
        """[T, hidden_size] -> [T, hidden_size]."""
        q, k, v = self._qkv_proj(ops, x)
        q = self._rotary(ops, self._q_norm(ops, q), batch.positions)
        k = self._rotary(ops, self._k_norm(ops, k), batch.positions)
        return self._o_proj(ops, self._attention(ops, q, k, v, batch, kv))


def qwen3_for_causal_lm(config: ModelConfig, params: Parameters, rotary: RotaryEmbedding) -> LlamaForCausalLM:
    """The model."""
    return LlamaForCausalLM(config, params, rotary, Qwen3Attention)
