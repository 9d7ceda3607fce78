"""A folder as transformers saves it: config.json, safetensors, tokenizer.json and what goes with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from octavo.config import ModelConfig, RopeScaling
from octavo.weights.fields import Fields
from octavo.weights.sampling_defaults import SamplingDefaults, read_sampling_defaults
from octavo.weights.source import CheckpointError
from octavo.weights.tokenizer_spec import TokenizerSpec

_DEFAULTS = {name: name for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")}
_DEFAULTS["max_tokens"] = "max_new_tokens"
ARCHITECTURE_BY_CLASS = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}


def read_config(folder: Path) -> ModelConfig:
    """The shape of the model. Raises CheckpointError for an architecture or a variant that octavo cannot run."""
    place = folder / "config.json"
    config = read_fields(place)
    class_name = str(*config.get("architectures", list, [])[:1])
    if class_name not in ARCHITECTURE_BY_CLASS:
        supported = ", ".join(ARCHITECTURE_BY_CLASS)
        raise CheckpointError(f"{place}: architecture {class_name!r} is not supported; octavo runs {supported}")
    _check_variant(config, place)
    architecture = ARCHITECTURE_BY_CLASS[class_name]
    hidden_size, num_heads = config.count("hidden_size"), config.count("num_attention_heads")
    rope = Fields(config.get("rope_parameters", dict, config.get("rope_scaling", dict, {})), str(place))
    return ModelConfig(
        architecture=architecture,
        vocab_size=config.count("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=config.count("intermediate_size"),
        num_layers=config.count("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=config.count("num_key_value_heads", num_heads),
        head_dim=config.count("head_dim", hidden_size // num_heads),
        max_position_embeddings=config.count("max_position_embeddings"),
        rms_norm_eps=config.positive("rms_norm_eps", 1e-6),
        rope_theta=rope.positive("rope_theta", config.positive("rope_theta", 10000.0)),
        rope_scaling=_rope_scaling(rope, place),
        tie_word_embeddings=config.get("tie_word_embeddings", bool, False),
        has_qkv_bias=architecture == "qwen2" or config.get("attention_bias", bool, False),
    )


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that hold the parameters, one or as many as the index lists."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.exists():
        return [single]
    if not index.exists():
        raise CheckpointError(f"{folder} holds no {single.name} and no {index.name}; octavo reads safetensors or GGUF")
    names = sorted({str(name) for name in read_fields(index).get("weight_map", dict).values()})
    for name in names:
        if Path(name).name != name:
            raise CheckpointError(f"{index}: {name!r} is not the name of a file in the same folder")
    return [folder / name for name in names]


def read_eos_token_ids(folder: Path) -> tuple[int, ...]:
    """The tokens that end an answer, from generation_config.json or else from config.json."""
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        if path.exists():
            config = read_fields(path)
            if "eos_token_id" in config:
                ids = config.get("eos_token_id", object)
                found = ids if isinstance(ids, list) else [ids]
                return tuple(Fields({"eos_token_id": i}, str(path)).get("eos_token_id", int) for i in found)
    return ()


def read_defaults(folder: Path) -> SamplingDefaults:
    """What generation_config.json recommends, if it is there."""
    path = folder / "generation_config.json"
    return read_sampling_defaults(read_fields(path), _DEFAULTS) if path.exists() else {}


def read_vocab_size(folder: Path) -> int:
    """How many token ids tokenizer.json knows, from 0 to the largest. Raises CheckpointError if it cannot be read."""
    import msgspec  # not above: a GGUF file is opened without; here it skips megabytes of merges

    decode, raw = msgspec.json.decode, dict[str, msgspec.Raw]
    place = _tokenizer_path(folder)
    try:
        tokenizer = decode(_read_text(place), type=raw)
        model = decode(tokenizer["model"], type=raw)
        vocabulary = decode(model["vocab"], type=dict[str, int] | list[Any])  # a list is in the order of the ids
        ids = [*vocabulary.values()] if isinstance(vocabulary, dict) else [*range(len(vocabulary))]
        if "added_tokens" in tokenizer:
            added = decode(tokenizer["added_tokens"], type=list[dict[str, Any]])
            ids += [Fields(token, str(place)).get("id", int) for token in added]
    except (msgspec.MsgspecError, KeyError, RecursionError) as error:
        raise CheckpointError(f"{place} is not a tokenizer: {error}") from error
    return 1 + max(ids, default=-1)


def read_tokenizer_spec(folder: Path) -> TokenizerSpec:
    """The tokenizer of the folder. Raises CheckpointError if there is no tokenizer.json."""
    vocabulary = _tokenizer_path(folder)
    config_path = folder / "tokenizer_config.json"
    config = read_fields(config_path) if config_path.exists() else Fields({}, str(config_path))
    adds_bos = config.get("add_bos_token", bool) if "add_bos_token" in config else None
    return TokenizerSpec(
        vocabulary=vocabulary,
        chat_template=_chat_template(folder, config),
        bos_token=_token(config, "bos_token"),
        eos_token=_token(config, "eos_token"),
        adds_bos=adds_bos,
    )


def _tokenizer_path(folder: Path) -> Path:
    path = folder / "tokenizer.json"
    if not path.exists():
        raise CheckpointError(f"{path} is missing: save the tokenizer with transformers' fast tokenizers")
    return path


def _check_variant(config: Fields, place: Path) -> None:
    """Refuse what the configuration may turn on and octavo does not compute."""
    activation = config.get("hidden_act", str, "silu")
    if activation != "silu":
        raise CheckpointError(f"{place}: hidden_act {activation!r} is not supported; octavo computes 'silu'")
    if config.get("use_sliding_window", bool, False):
        raise CheckpointError(f"{place}: use_sliding_window is not supported; octavo attends to the whole context")


def _rope_scaling(rope: Fields, place: Path) -> RopeScaling | None:
    kind = rope.get("rope_type", str, rope.get("type", str, "default"))
    if rope.positive("partial_rotary_factor", 1.0) != 1.0:
        raise CheckpointError(f"{place}: partial_rotary_factor is not supported; octavo rotates whole heads")
    if kind == "default":
        return None
    if kind != "llama3":
        raise CheckpointError(f"{place}: rope type {kind!r} is not supported; octavo computes 'default' and 'llama3'")
    return RopeScaling(
        factor=rope.positive("factor"),
        low_freq_factor=rope.positive("low_freq_factor"),
        high_freq_factor=rope.positive("high_freq_factor"),
        original_max_position_embeddings=rope.count("original_max_position_embeddings"),
    )


def _chat_template(folder: Path, config: Fields) -> str | None:
    """chat_template.jinja if it is there, else the template in tokenizer_config.json, of several the default one."""
    path = folder / "chat_template.jinja"
    if path.exists():
        return _read_text(path)
    if "chat_template" not in config:
        return None
    template = config.get("chat_template", object)
    if isinstance(template, list):
        named = [Fields(entry, str(folder)) for entry in template if isinstance(entry, dict)]
        return next((t.get("template", str) for t in named if t.get("name", str) == "default"), None)
    return config.get("chat_template", str)


def _token(config: Fields, name: str) -> str | None:
    """The text of a special token, given as a string or as an object that holds it."""
    if name not in config:
        return None
    token = config.get(name, object)
    return str(token["content"]) if isinstance(token, dict) and "content" in token else config.get(name, str)


def read_fields(path: Path) -> Fields:
    """The JSON object in a file. Raises CheckpointError if there is none."""
    try:
        values: Any = json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} must hold a JSON object")
    return Fields(values, str(path))


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
