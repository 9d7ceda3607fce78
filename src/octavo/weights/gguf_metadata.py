"""What the metadata of a GGUF file say: configuration, tokenizer, sampling defaults. Read without numpy.

The keys are those of llama.cpp's convert_hf_to_gguf.py.
"""

from __future__ import annotations

from typing import Any

from octavo.config import ModelConfig
from octavo.weights.fields import Fields
from octavo.weights.gguf_file import GGUFFile, GGUFTensor, NumberArray, StringArray
from octavo.weights.parameters import ARCHITECTURES
from octavo.weights.sampling_defaults import SamplingDefaults, read_sampling_defaults
from octavo.weights.source import CheckpointError
from octavo.weights.tokenizer_spec import GGUFVocabulary, TokenizerSpec, TokenType

_DEFAULTS = {name: name for name in ("top_p", "top_k", "min_p")}
_DEFAULTS |= {"temperature": "temp", "repetition_penalty": "penalty_repeat"}


def read_config(file: GGUFFile) -> ModelConfig:
    """The shape of the model. Raises CheckpointError for an architecture or a variant that octavo cannot run."""
    metadata = Fields(file.metadata, str(file.path))
    architecture = metadata.get("general.architecture", str)
    if architecture not in ARCHITECTURES:
        raise CheckpointError(
            f"{file.path}: architecture {architecture!r} is not supported; octavo runs {', '.join(ARCHITECTURES)}"
        )
    if metadata.get("split.count", int, 1) > 1:
        raise CheckpointError(f"{file.path} is one part of several; join them first with `llama-gguf-split --merge`")
    model = metadata.under(f"{architecture}.")
    scaling = model.get("rope.scaling.type", str, "none")
    if scaling != "none":
        raise CheckpointError(f"{file.path}: rope scaling {scaling!r} is not supported in GGUF files")
    hidden_size, num_heads = model.count("embedding_length"), model.count("attention.head_count")
    head_dim = model.count("attention.key_length", hidden_size // num_heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        if model.count(key, head_dim) != head_dim:
            raise CheckpointError(
                f"{file.path}: {key} is {model.count(key)}; it must be the size of a head, {head_dim}"
            )
    return ModelConfig(
        architecture=architecture,
        vocab_size=_embedding(file).shape[0],
        hidden_size=hidden_size,
        intermediate_size=model.count("feed_forward_length"),
        num_layers=model.count("block_count"),
        num_heads=num_heads,
        num_kv_heads=model.count("attention.head_count_kv", num_heads),
        head_dim=head_dim,
        max_position_embeddings=model.count("context_length"),
        rms_norm_eps=model.positive("attention.layer_norm_rms_epsilon"),
        rope_theta=model.positive("rope.freq_base", 10000.0),
        tie_word_embeddings="output.weight" not in file.tensors,
        has_qkv_bias="blk.0.attn_q.bias" in file.tensors,
    )


def read_eos_token_ids(file: GGUFFile) -> tuple[int, ...]:
    """The tokens that end an answer: end of sequence, of turn, of message."""
    metadata = Fields(file.metadata, str(file.path))
    names = ("eos_token_id", "eot_token_id", "eom_token_id")
    ids = [metadata.token_id(f"tokenizer.ggml.{name}", _embedding(file).shape[0]) for name in names]
    return tuple(dict.fromkeys(token_id for token_id in ids if token_id is not None))


def read_defaults(file: GGUFFile) -> SamplingDefaults:
    """What the model's makers recommend, in files that say so."""
    metadata = Fields(file.metadata, str(file.path))
    return read_sampling_defaults(metadata.under("general.sampling."), _DEFAULTS)


def read_vocab_size(file: GGUFFile) -> int:
    """How many token ids the tokenizer knows. Raises CheckpointError if there is no list of tokens."""
    metadata = Fields(file.metadata, str(file.path))
    tokens = metadata.get("tokenizer.ggml.tokens", StringArray)
    return _num_used(_numbers(metadata, "tokenizer.ggml.token_type"), tokens.num_strings)


def read_tokenizer_spec(file: GGUFFile) -> TokenizerSpec:
    """The tokenizer in the metadata. Raises CheckpointError if its lists are missing or contradict each other."""
    metadata = Fields(file.metadata, str(file.path))
    vocabulary = _read_vocabulary(metadata, str(file.path))
    bos, eos = (_special_token(metadata, name, vocabulary.tokens) for name in ("bos", "eos"))
    adds_bos = vocabulary.model == "llama" or vocabulary.pre == "llama-bpe"
    return TokenizerSpec(
        vocabulary=vocabulary,
        chat_template=metadata.get("tokenizer.chat_template", str, "") or None,
        bos_token=bos,
        eos_token=eos,
        adds_bos=metadata.get("tokenizer.ggml.add_bos_token", bool, adds_bos),
    )


def _read_vocabulary(metadata: Fields, place: str) -> GGUFVocabulary:
    tokens = metadata.get("tokenizer.ggml.tokens", StringArray).read()
    types = _numbers(metadata, "tokenizer.ggml.token_type") or [int(TokenType.NORMAL)] * len(tokens)
    scores = _numbers(metadata, "tokenizer.ggml.scores")
    if len(types) != len(tokens) or len(scores) not in (0, len(tokens)):
        raise CheckpointError(
            f"{place}: {len(tokens)} tokens, {len(types)} token types and {len(scores)} scores: the file is damaged"
        )
    num_used = _num_used(types, len(tokens))
    del types[num_used:], tokens[num_used:]
    merges = "tokenizer.ggml.merges"
    return GGUFVocabulary(
        model=metadata.get("tokenizer.ggml.model", str),
        pre=metadata.get("tokenizer.ggml.pre", str, "default"),
        tokens=tokens,
        types=types,
        merges=metadata.get(merges, StringArray).read() if merges in metadata else [],
        scores=scores,
        adds_space_prefix=metadata.get("tokenizer.ggml.add_space_prefix", bool, True),
        unk_token_id=metadata.token_id("tokenizer.ggml.unknown_token_id", len(tokens)),
    )


def _num_used(types: list[int], num_tokens: int) -> int:
    """The number of tokens without the unused ones at the end: they pad the embedding, and no text has them."""
    while num_tokens and types and types[num_tokens - 1] == TokenType.UNUSED:
        num_tokens -= 1
    return num_tokens


def _numbers(metadata: Fields, name: str) -> list[Any]:
    """An array of numbers; empty if the field is absent."""
    return metadata.get(name, NumberArray).read() if name in metadata else []


def _special_token(metadata: Fields, name: str, tokens: list[str]) -> str | None:
    token_id = metadata.token_id(f"tokenizer.ggml.{name}_token_id", len(tokens))
    return None if token_id is None else tokens[token_id]


def _embedding(file: GGUFFile) -> GGUFTensor:
    tensor = file.tensors.get("token_embd.weight")
    if tensor is None or len(tensor.shape) != 2:
        raise CheckpointError(f"{file.path}: the embedding, token_embd.weight, is missing or not a matrix")
    return tensor
