"""Writes the golden files that the models are tested against: what transformers computes, in float32, with torch.

    python -m tools.make_golden

Runs in an environment of its own (`make golden`), for octavo itself does without torch. Under tests/models/golden it
writes

- a folder for each tiny random model: config.json and model.safetensors as a Hugging Face repository has them, for the
  Llamas model.gguf with the same weights as llama.cpp would convert them, and logits.npz: `token_ids` [T] and `logits`
  [T, V];
- smollm2.npz: `token_ids` [T] of a text, and of the demo model's logits every 16th (`logits` [T, V / 16]), the argmax
  and the logsumexp at every position;
- smollm2_chat.json: chats and the demo model's greedy answers, as token ids.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from tools import fetch_model

GOLDEN = Path(__file__).parent.parent / "tests" / "models" / "golden"
SEED = 20250711
NUM_TOKENS = 70  # of the tiny models' input: four KV blocks and a bit
VOCAB_STRIDE = 16  # of the demo model's logits one in so many is kept
TEXT = (
    "The library at Alexandria held some four hundred thousand scrolls; nobody knows how it ended, "
    "only that each book we still have was copied by hand, again and again."
)
CHATS = (
    [{"role": "user", "content": "Tell me a story about a lighthouse."}],
    [
        {"role": "system", "content": "You answer in one short sentence."},
        {"role": "user", "content": "Why is the sky blue?"},
    ],
)
NUM_ANSWER_TOKENS = 24
MIN_MARGIN = 1e-3  # between the two largest logits of each step: below, rounding could choose another token

TINY: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}
# 64 positions, so that the 8 frequencies of a head fall on both sides of the scaling and between.
LLAMA3_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LLAMA = TINY | {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
TINY_CONFIGS = {
    "llama": LLAMA,
    "llama3": LLAMA | {"rope_scaling": LLAMA3_SCALING, "tie_word_embeddings": True},
    "qwen2": TINY
    | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "rms_norm_eps": 1e-6, "torch_dtype": "bfloat16"},
    "qwen3": TINY
    | {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "head_dim": 32,  # not hidden_size / num_attention_heads
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "torch_dtype": "float16",
    },
}


def main() -> None:
    """Write all golden files."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    for seed, (name, config) in enumerate(TINY_CONFIGS.items(), start=SEED):
        write_tiny(GOLDEN / name, config, torch.Generator().manual_seed(seed))
    path = fetch_model.fetch()
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    )
    write_text(GOLDEN / "smollm2.npz", model, tokenizer)
    write_chats(GOLDEN / "smollm2_chat.json", model, tokenizer)


def write_tiny(folder: Path, config: dict[str, Any], generator: torch.Generator) -> None:
    """Write a random model of this configuration, and its logits of a random input."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    model = AutoModelForCausalLM.from_config(
        AutoConfig.from_pretrained(folder), dtype=torch.float32, attn_implementation="eager"
    )
    # Rounded first to the type that the file stores, so that transformers computes with what the file holds.
    dtype = getattr(torch, config["torch_dtype"])
    tensors = {name: random_tensor(name, tensor, generator).to(dtype) for name, tensor in model.named_parameters()}
    for name, tensor in model.named_parameters():
        tensor.copy_(tensors[name])
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    if config["model_type"] == "llama":
        write_gguf(folder / "model.gguf", config, {name: tensor.numpy() for name, tensor in tensors.items()})
    token_ids = torch.randint(config["vocab_size"], (NUM_TOKENS,), generator=generator)
    np.savez_compressed(folder / "logits.npz", token_ids=token_ids.numpy(), logits=logits_of(model, token_ids))


def random_tensor(name: str, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A parameter that keeps activations near 1, so that attention has something to choose and logits differ."""
    noise = torch.randn(like.shape, generator=generator)
    if name.endswith("norm.weight"):
        return 1 + noise / 4
    if name.endswith("bias"):
        return noise / 2
    return noise / like.shape[1] ** 0.5


def logits_of(model: Any, token_ids: torch.Tensor) -> np.ndarray:
    """Logits at every position, [T, V]."""
    return np.asarray(model(token_ids[None]).logits[0])


def write_gguf(path: Path, config: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
    """Write a Llama as llama.cpp's convert_hf_to_gguf does: its keys, its names, its order of the rows of Q and K."""
    num_heads, num_kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config["hidden_size"] // num_heads
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(num_heads)
    writer.add_head_count_kv(num_kv_heads)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_rope_dimension_count(head_dim)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if "rope_scaling" in config:
        divisors = frequency_divisors(head_dim, config["rope_theta"], config["rope_scaling"])
        writer.add_tensor("rope_freqs.weight", divisors)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for name, tensor in tensors.items():
        if name.endswith("q_proj.weight"):
            tensor = permute_rows(tensor, num_heads)
        elif name.endswith("k_proj.weight"):
            tensor = permute_rows(tensor, num_kv_heads)
        gguf_name = names.get_name(name, try_suffixes=(".weight",))
        if gguf_name is None:
            raise KeyError(f"llama.cpp has no name for {name}")
        writer.add_tensor(gguf_name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def permute_rows(tensor: np.ndarray, num_heads: int) -> np.ndarray:
    """From half against half to neighbour against neighbour: the pairs of rows that llama.cpp rotates together."""
    pairs = tensor.reshape(num_heads, 2, -1, tensor.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(tensor.shape)


def frequency_divisors(head_dim: int, theta: float, scaling: dict[str, Any]) -> np.ndarray:
    """What each inverse frequency is divided by, [head_dim / 2], as convert_hf_to_gguf has it."""
    context, low, high = (
        scaling[name] for name in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    )
    wavelengths = 2 * np.pi * theta ** (np.arange(0, head_dim, 2) / head_dim)
    smooth = np.clip((context / wavelengths - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / scaling["factor"] + smooth)).astype(np.float32)


def write_text(path: Path, model: Any, tokenizer: Any) -> None:
    """Write what the demo model makes of `TEXT`."""
    token_ids = torch.tensor(tokenizer(TEXT).input_ids)
    logits = logits_of(model, token_ids)
    np.savez_compressed(
        path,
        token_ids=token_ids.numpy(),
        logits=logits[:, ::VOCAB_STRIDE],
        argmax=logits.argmax(axis=1),
        logsumexp=torch.logsumexp(torch.from_numpy(logits).double(), dim=1).numpy(),
    )


def write_chats(path: Path, model: Any, tokenizer: Any) -> None:
    """Write the demo model's greedy answers to `CHATS`."""
    chats = []
    for messages in CHATS:
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        prompt_token_ids = tokenizer(prompt, add_special_tokens=False).input_ids
        answer = greedy(model, prompt_token_ids)
        chats.append(
            {
                "messages": messages,
                "prompt": prompt,
                "prompt_token_ids": prompt_token_ids,
                "output_token_ids": answer,
                "output": tokenizer.decode(answer),
            }
        )
    path.write_text(json.dumps(chats, indent=1) + "\n")


def greedy(model: Any, prompt_token_ids: list[int]) -> list[int]:
    """The most likely continuation, past any end-of-text token; ValueError where rounding could have chosen."""
    token_ids = list(prompt_token_ids)
    for _ in range(NUM_ANSWER_TOKENS):
        best = torch.topk(model(torch.tensor([token_ids])).logits[0, -1], 2)
        margin = float(best.values[0] - best.values[1])
        if margin < MIN_MARGIN:
            raise ValueError(f"two logits differ by {margin:.1e}, limit {MIN_MARGIN:.0e}: take another prompt")
        token_ids.append(int(best.indices[0]))
    return token_ids[len(prompt_token_ids) :]


if __name__ == "__main__":
    main()
