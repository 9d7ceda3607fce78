"""Writes the prompts that chat templates are tested against: what transformers makes of conversations.

    python -m tools.make_golden_chats

Runs in the same environment as make_golden (`make golden`). The templates in tests/data/chat_templates are those that
the models of that name come with. Writes tests/data/chat_prompts.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

DATA = Path(__file__).parent.parent / "tests" / "data"
PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Ort, z. B. Zürich"},
        "days": {"type": "array", "items": {"type": "integer"}, "description": "which <days> & when"},
    },
    "required": ["city"],
}
TOOLS = [
    {
        "type": "function",
        "function": {"name": "weather", "description": "Forecast of a place's weather", "parameters": PARAMETERS},
    },
    {
        "type": "function",
        "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}},
    },
]
USER = {"role": "user", "content": "  What's the weather in Zürich <now>?\n"}
CALL = {
    "id": "abcDEF123",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Zürich", "days": [1, 2], "exact": null}'},
}
RESULT = {"role": "tool", "tool_call_id": "abcDEF123", "content": '{"rain": "5 mm", "sun": false}'}
CHATS: dict[str, list[dict[str, Any]]] = {
    "question": [USER],
    "system": [{"role": "system", "content": "Be brief.\n"}, USER],
    "developer": [{"role": "developer", "content": "Be brief."}, USER],
    "answer": [USER, {"role": "assistant", "content": " Rain. "}, {"role": "user", "content": "안녕 👋"}],
    "reasoning": [USER, {"role": "assistant", "content": "Rain.", "reasoning_content": "Always."}, USER],
    "call": [USER, {"role": "assistant", "content": "", "tool_calls": [CALL]}, RESULT],
    "call without content": [USER, {"role": "assistant", "tool_calls": [CALL]}, RESULT, USER],
    "words and call": [USER, {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]}, RESULT],
    "two calls": [USER, {"role": "assistant", "content": "", "tool_calls": [CALL, CALL]}, RESULT, RESULT],
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {"add_generation_prompt": True},
    "tools": {"add_generation_prompt": True, "tools": TOOLS},
    "no generation prompt": {"add_generation_prompt": False},
    "continued": {"continue_final_message": True},
    "no thoughts": {"add_generation_prompt": True, "enable_thinking": False},
}
VARIABLES = {"date_string": "26 Jul 2024"}  # some templates ask for today's else


def main() -> None:
    """Write the file."""
    templates = sorted((DATA / "chat_templates").glob("*.jinja"))
    prompts_by_template = {path.stem: prompts(path.read_text()) for path in templates}
    golden = {
        "tools": TOOLS,
        "chats": CHATS,
        "options": OPTIONS,
        "variables": VARIABLES,
        "prompts": prompts_by_template,
    }
    path = DATA / "chat_prompts.json"
    path.write_text(json.dumps(golden, indent=1, ensure_ascii=True) + "\n")
    print(f"{path}: {sum(map(len, prompts_by_template.values()))} prompts")


def prompts(template: str) -> dict[str, str]:
    """By "conversation, options" the prompt, where the template takes the conversation."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE()), bos_token="<s>", eos_token="</s>", chat_template=template
    )
    rendered: dict[str, str] = {}
    for chat_name, messages in CHATS.items():
        for options_name, options in OPTIONS.items():
            if chat_name not in ("system", "answer") and options_name not in ("plain", "tools"):
                continue
            conversation = [for_template(message) for message in messages]
            try:
                prompt = tokenizer.apply_chat_template(conversation, tokenize=False, **options, **VARIABLES)
            except Exception as error:  # a template fails in any way
                print(f"refused: {chat_name}, {options_name}: {error}")
            else:
                rendered[f"{chat_name}, {options_name}"] = prompt
    return rendered


def for_template(message: dict[str, Any]) -> dict[str, Any]:
    """A message of the API as templates read it."""
    read = dict(message)
    if read["role"] == "developer":
        read["role"] = "system"
    if "tool_calls" in read:
        read["tool_calls"] = [
            call | {"function": call["function"] | {"arguments": json.loads(call["function"]["arguments"])}}
            for call in read["tool_calls"]
        ]
    return read


if __name__ == "__main__":
    main()
