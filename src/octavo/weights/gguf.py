"""The parameters of a GGUF file under Hugging Face names.

The work of llama.cpp's convert_hf_to_gguf.py is undone here: names, dimension order, and the row order of the rotated
projections of Llama.
"""

from __future__ import annotations

import re

import numpy as np

from octavo.backends.ops import ByteArray, StoredTensor
from octavo.config import ModelConfig
from octavo.weights.gguf_file import GGUFFile, GGUFTensor
from octavo.weights.source import ROPE_FREQS, CheckpointError

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
_GGUF_NAME = re.compile(r"(?:blk\.(?P<layer>\d+)\.)?(?P<part>\w+)\.(?P<kind>weight|bias)")


class GGUFSource:
    """The parameters of a GGUF file as a WeightSource."""

    def __init__(self, file: GGUFFile, config: ModelConfig) -> None:
        self._file = file
        self._tensors = {hugging_face_name(name): tensor for name, tensor in file.tensors.items()}
        # The converter reorders the rows of Llama's rotated projections, head by head.
        self._reordered = {}
        if config.architecture == "llama":
            self._reordered = {"q_proj": config.num_heads, "k_proj": config.num_kv_heads}

    def names(self) -> list[str]:
        """See WeightSource."""
        return list(self._tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def shape(self, name: str) -> tuple[int, ...]:
        """See WeightSource."""
        return self._tensor(name).shape

    def stored(self, name: str) -> StoredTensor:
        """See WeightSource."""
        tensor = self._tensor(name)
        data = np.frombuffer(self._file.bytes_of(tensor), np.uint8)
        for projection, num_heads in self._reordered.items():
            if f".{projection}." in name:
                data = split_halves(data.reshape(tensor.shape[0], -1), num_heads)
        return StoredTensor(tensor.type_name, data.reshape(*tensor.shape[:-1], -1), tensor.shape)

    def _tensor(self, name: str) -> GGUFTensor:
        if name not in self._tensors:
            raise CheckpointError(f"{self._file.path} holds no parameter {name}")
        return self._tensors[name]


def hugging_face_name(name: str) -> str:
    """The Hugging Face name of a GGUF tensor; a name without a counterpart stays as it is."""
    match = _GGUF_NAME.fullmatch(name)
    if name == ROPE_FREQS or match is None or match["part"] not in _HF_NAMES:
        return name
    layer = "" if match["layer"] is None else f"model.layers.{match['layer']}."
    return f"{layer}{_HF_NAMES[match['part']]}.{match['kind']}"


def split_halves(rows: ByteArray, num_heads: int) -> ByteArray:
    """Put the rows of each head, [num_heads * D, bytes], back from pairs side by side to first half, second half.

    GGUF keeps a head's rows as 0, D/2, 1, D/2 + 1, ...: the order in which rotary embedding takes neighbours for
    pairs. `num_heads` is the number of heads of this very projection: of K there may be fewer than of Q.
    """
    pairs = rows.reshape(num_heads, -1, 2, rows.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)
