"""Writes the token ids that the tokenizer is tested against: what transformers makes of the demo model's vocabulary.

    python -m tools.make_golden_tokens

Runs in the same environment as make_golden (`make golden`). Writes tests/engine/golden/smollm2_tokens.json: texts with
their ids and what the ids decode to, and chats with their prompts and ids.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import pre_tokenizers
from transformers import AutoTokenizer

from tools import fetch_model

GOLDEN = Path(__file__).parent.parent / "tests" / "engine" / "golden" / "smollm2_tokens.json"
TEXTS = (
    "",
    " ",
    "\n",
    "Hello, world!",
    "  two  spaces and a trailing one ",
    "\tTabs\n\n\nand\r\nline ends\r",
    "1234567890 and 3.14159, 1e-9, 0x7F",
    "²½Ⅷ ٣٤٥ १२३",
    "I'll say it's what they've done; we'd rather you'RE right, 'tis.",
    "def square(x: int) -> int:\n    return x ** 2  # comment\n",
    '{"key": [1, 2.5, null, true], "nested": {"a": "b\\n"}}',
    "SELECT * FROM users WHERE name = 'O''Brien' AND id <= 42;",
    "https://example.org/path?query=value&other=%20#fragment",
    "안녕하세요, 세계! 오늘 날씨가 좋네요.",
    "日本語のテキスト、漢字とカタカナ。",
    "这是一个中文句子。",
    "Привет, мир! Как дела?",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "Ελληνικά και ñandú, façade, naïve, Ærøskøbing",
    "e\u0301 combines; \u00e9 does not",
    "👩\u200d👩\u200d👧\u200d👦 family, 🇩🇪 flag, 👍🏽 skin tone, 🏳\ufe0f\u200d🌈",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 beyond the basic plane",
    "a genuine \ufffd and a \u200bzero width space, \ufeffBOM",
    "\x00\x01\x1b[0m control characters \x7f\x85",
    "<|im_start|>user\nspecial tokens in the text<|im_end|>",
    "almost special: <|im_start |> <im_end> <|endoftext|>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "____----====~~~~....!!!!????",
    "CamelCaseWordsAND_SCREAMING_SNAKE-kebab",
    "                                        forty spaces",
    "ĠThe characters Ċ of the byte alphabet ▁ themselves",
)
CHATS: tuple[list[dict[str, str]], ...] = (
    [{"role": "user", "content": "What is a lighthouse?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "안녕 👋"}],
    [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello! How can I help?"},
        {"role": "user", "content": "  Count to 3.\n"},
    ],
)


def main() -> None:
    """Write the file."""
    tokenizer = load_tokenizer()
    golden = {"texts": [encoded(tokenizer, text) for text in TEXTS], "chats": [chat(tokenizer, c) for c in CHATS]}
    GOLDEN.parent.mkdir(parents=True, exist_ok=True)
    GOLDEN.write_text(json.dumps(golden, indent=1, ensure_ascii=True) + "\n")
    print(f"{GOLDEN}: {len(TEXTS)} texts, {len(CHATS)} chats")


def load_tokenizer() -> Any:
    """The demo model's tokenizer as transformers reads it from the GGUF file.

    Transformers does not know the pre-tokenizer "smollm" by name; it is set here to the one in the model's own
    tokenizer.json: single digits, then GPT-2's words.
    """
    path = fetch_model.fetch()
    tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    return tokenizer


def encoded(tokenizer: Any, text: str) -> dict[str, Any]:
    """The text, its ids, and what they decode to."""
    ids = tokenizer.encode(text)
    return {
        "text": text,
        "ids": ids,
        "decoded": tokenizer.decode(ids),
        "decoded_without_special_tokens": tokenizer.decode(ids, skip_special_tokens=True),
    }


def chat(tokenizer: Any, messages: list[dict[str, str]]) -> dict[str, Any]:
    """The conversation, its prompt and the prompt's ids."""
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    return {"messages": messages, "prompt": prompt, "ids": ids}


if __name__ == "__main__":
    main()
