"""A Hugging Face folder in GGUF's terms: metadata, names and the order of rows as convert_hf_to_gguf.py writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from octavo.backends.ops import Float32Array
from octavo.compression.gguf_vocabulary import gguf_vocabulary
from octavo.config import ModelConfig
from octavo.layers.rotary import inverse_frequencies, scale_frequencies
from octavo.weights.checkpoint import Checkpoint
from octavo.weights.gguf import rows_in_pairs
from octavo.weights.gguf_writer import entry
from octavo.weights.tokenizer_spec import TokenizerSpec

_END_NAMES = ("eos", "eot", "eom")  # of sequence, of turn, of message: any ends an answer


def metadata_entries(checkpoint: Checkpoint) -> list[bytes]:
    """What a GGUF file says of the model and its tokenizer.

    Raises CheckpointError for a tokenizer that has no name in GGUF, ValueError for more tokens that end an answer than
    it has names for.
    """
    config, spec = checkpoint.config, checkpoint.tokenizer_spec
    assert isinstance(spec.vocabulary, Path), "the vocabulary of a folder is its tokenizer.json"
    vocabulary = gguf_vocabulary(spec.vocabulary, config.vocab_size)
    general = {"architecture": config.architecture, "type": "model", "name": checkpoint.name}
    entries = [entry(f"general.{key}", value) for key, value in general.items()]
    entries += [entry(f"{config.architecture}.{key}", value) for key, value in _shape(config).items()]
    entries.append(entry("tokenizer.ggml.model", vocabulary.model))
    entries.append(entry("tokenizer.ggml.pre", vocabulary.pre))
    entries.append(entry("tokenizer.ggml.tokens", vocabulary.tokens))
    entries.append(entry("tokenizer.ggml.token_type", vocabulary.types))
    entries.append(entry("tokenizer.ggml.merges", vocabulary.merges))
    id_by_token = {token: token_id for token_id, token in enumerate(vocabulary.tokens)}
    bos_id = id_by_token.get(spec.bos_token or "")
    if bos_id is not None:
        entries.append(entry("tokenizer.ggml.bos_token_id", bos_id))
    for name, token_id in zip(_END_NAMES, _end_ids(checkpoint, id_by_token), strict=False):
        entries.append(entry(f"tokenizer.ggml.{name}_token_id", token_id))
    entries.append(entry("tokenizer.ggml.add_bos_token", _adds_bos(spec)))
    if spec.chat_template is not None:
        entries.append(entry("tokenizer.chat_template", spec.chat_template))
    return entries


def row_order(config: ModelConfig, name: str, num_rows: int) -> NDArray[np.intp] | None:
    """Llama's rotated projections have their rows in pairs; None: as they are."""
    if config.architecture == "llama":
        for projection, num_heads in ((".q_proj.", config.num_heads), (".k_proj.", config.num_kv_heads)):
            if projection in name:
                return rows_in_pairs(num_rows, num_heads)
    return None


def rope_divisors(config: ModelConfig) -> Float32Array | None:
    """What GGUF calls rope_freqs, [head_dim / 2]; None where frequencies are not scaled."""
    if config.rope_scaling is None:
        return None
    inv_freq = inverse_frequencies(config.head_dim, config.rope_theta)
    return inv_freq / scale_frequencies(inv_freq, config.rope_scaling)


def _shape(config: ModelConfig) -> dict[str, int | float]:
    return {
        "block_count": config.num_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.num_kv_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "rope.dimension_count": config.head_dim,
        "rope.freq_base": float(config.rope_theta),
        "vocab_size": config.vocab_size,
    }


def _end_ids(checkpoint: Checkpoint, id_by_token: dict[str, int]) -> list[int]:
    """The tokens that end an answer, the tokenizer's own first."""
    own = id_by_token.get(checkpoint.tokenizer_spec.eos_token or "")
    ids = sorted(checkpoint.eos_token_ids, key=lambda token_id: token_id != own)
    if len(ids) > len(_END_NAMES):
        raise ValueError(
            f"tokens {ids} end an answer, and GGUF has names for {len(_END_NAMES)}: {', '.join(_END_NAMES)}"
        )
    return ids


def _adds_bos(spec: TokenizerSpec) -> bool:
    if spec.adds_bos is not None:
        return spec.adds_bos
    return spec.bos_token in Tokenizer.from_file(str(spec.vocabulary)).encode("").tokens
