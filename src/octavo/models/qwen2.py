"""Qwen2 and Qwen2.5 (Yang et al. 2024): Llama whose projections to Q, K and V have a bias."""

from __future__ import annotations

import dataclasses

from octavo.config import ModelConfig
from octavo.layers.parameters import Parameters
from octavo.layers.rotary import RotaryEmbedding
from octavo.models.llama import LlamaForCausalLM


def qwen2_for_causal_lm(config: ModelConfig, params: Parameters, rotary: RotaryEmbedding) -> LlamaForCausalLM:
    """The model."""
    return LlamaForCausalLM(dataclasses.replace(config, has_qkv_bias=True), params, rotary)
