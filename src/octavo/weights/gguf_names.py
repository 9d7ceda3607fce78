"""How the parameters of a GGUF file are called in Hugging Face's checkpoints, and the other way round."""

from __future__ import annotations

import re

from octavo.weights.source import ROPE_FREQS

_HF_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GGUF_PARTS = {hf_name: part for part, hf_name in _HF_NAMES.items()}
_HF_NAME = re.compile(r"(?:model\.layers\.(?P<layer>\d+)\.)?(?P<part>.+)\.(?P<kind>weight|bias)")
_GGUF_NAME = re.compile(r"(?:blk\.(?P<layer>\d+)\.)?(?P<part>\w+)\.(?P<kind>weight|bias)")


def hugging_face_name(name: str) -> str:
    """The Hugging Face name of a GGUF tensor; a name without a counterpart stays as it is."""
    match = _GGUF_NAME.fullmatch(name)
    if name == ROPE_FREQS or match is None or match["part"] not in _HF_NAMES:
        return name
    layer = "" if match["layer"] is None else f"model.layers.{match['layer']}."
    return f"{layer}{_HF_NAMES[match['part']]}.{match['kind']}"


def gguf_name(name: str) -> str:
    """The GGUF name of a Hugging Face parameter, one of weights.parameters."""
    match = _HF_NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"{name} is no parameter of a model")
    layer = "" if match["layer"] is None else f"blk.{match['layer']}."
    return f"{layer}{_GGUF_PARTS[match['part']]}.{match['kind']}"
