"""A whole model in a folder: the golden Llama's random weights, with a tokenizer of one token a byte.

Its answers are noise, its text seldom valid UTF-8, and its vocabulary narrower than its logits: a model that spares
the engine nothing, and runs in milliseconds.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

GOLDEN = Path(__file__).parents[1] / "models" / "golden" / "llama"
SPECIAL_TOKENS = ("<unk>", "<s>", "</s>")  # ids 0, 1, 2; the golden configuration ends a sequence with 2
EOS_ID = 2
NUM_TOKENS = len(SPECIAL_TOKENS) + 256  # of the tokenizer; the embedding has 320 rows
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)

Weights = dict[str, np.ndarray]


def write_tiny_model(folder: Path, change_weights: Callable[[Weights], None] | None = None) -> Path:
    """Write the model; `change_weights` may change the arrays, by their Hugging Face names, in place."""
    folder.mkdir(parents=True)
    shutil.copy(GOLDEN / "config.json", folder)
    weights = load_file(GOLDEN / "model.safetensors")
    if change_weights is not None:
        change_weights(weights)
    save_file(weights, folder / "model.safetensors")
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "</s>", "add_bos_token": False, "chat_template": CHAT_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def byte_tokenizer() -> Tokenizer:
    """One token for each byte, after the special tokens."""
    vocabulary = {token: token_id for token_id, token in enumerate((*SPECIAL_TOKENS, *_byte_alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    return tokenizer


def byte_id(byte: int) -> int:
    """The token that stands for this byte."""
    return len(SPECIAL_TOKENS) + byte


def _byte_alphabet() -> list[str]:
    """GPT-2's characters of the bytes 0 to 255."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte if byte in printable else 256 + others.index(byte)) for byte in range(256)]
