"""What the API is sent becomes the prompt that transformers makes of it, with the templates of real models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from octavo.engine.chat_template import ChatTemplateError
from octavo.engine.tokenizer import Tokenizer
from octavo.server.openai.chat_messages import template_messages
from octavo.server.openai.chat_protocol import ChatMessage
from octavo.server.turns.formats import HERMES, LLAMA, MISTRAL, THINK
from octavo.server.turns.style import TurnStyle
from octavo.server.turns.tools import Tool
from octavo.weights.tokenizer_spec import TokenizerSpec
from tests.engine.tiny_model import byte_tokenizer

DATA = Path(__file__).parents[1] / "data"
GOLDEN = json.loads((DATA / "chat_prompts.json").read_text())
TOOLS = msgspec.convert(GOLDEN["tools"], list[Tool])


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    byte_tokenizer().save(str(path))
    return path


def open_tokenizer(vocabulary: Path, template: str) -> Tokenizer:
    source = (DATA / "chat_templates" / f"{template}.jinja").read_text()
    return Tokenizer(TokenizerSpec(vocabulary, source, "<s>", "</s>", adds_bos=False))


def render(tokenizer: Tokenizer, messages: list[dict[str, Any]], tools: list[Tool], **options: Any) -> str:
    read = template_messages(msgspec.convert(messages, list[ChatMessage]))
    taken, described = TurnStyle(tokenizer).messages(read, tools)
    return tokenizer.apply_chat_template(taken, tools=described, **options)


@pytest.mark.parametrize("template", GOLDEN["prompts"])
def test_prompts_are_those_of_transformers(vocabulary: Path, template: str) -> None:
    tokenizer = open_tokenizer(vocabulary, template)
    prompts = GOLDEN["prompts"][template]
    assert len(prompts) > 5
    for name, expected in prompts.items():
        chat_name, options_name = name.split(", ")
        if template == "smollm2" and (options_name == "tools" or "call" in chat_name):
            continue  # knows nothing of tools: octavo tells it in its own words, transformers does not
        options = GOLDEN["options"][options_name] | GOLDEN["variables"]
        tools = TOOLS if options.pop("tools", None) else []
        assert render(tokenizer, GOLDEN["chats"][chat_name], tools, **options) == expected, name


def test_a_template_may_refuse_a_conversation(vocabulary: Path) -> None:
    with pytest.raises(ChatTemplateError, match="only supports single tool-calls at once"):
        render(open_tokenizer(vocabulary, "llama-3.2"), GOLDEN["chats"]["two calls"], [])


@pytest.mark.parametrize("template", ["qwen2.5", "qwen3", "llama-3.1", "llama-3.2", "mistral-nemo"])
def test_calls_may_come_without_content_and_with_any_ids(vocabulary: Path, template: str) -> None:
    tokenizer = open_tokenizer(vocabulary, template)
    user, assistant, result, *_ = GOLDEN["chats"]["call without content"]
    other = {
        "role": "assistant",
        "content": None,
        "tool_calls": [assistant["tool_calls"][0] | {"id": "call_of_another"}],
    }
    prompt = render(tokenizer, [user, other, result | {"tool_call_id": "call_of_another"}], TOOLS)
    assert "weather" in prompt and "5 mm" in prompt
    # No calls at all, as some clients say it.
    nothing = {"role": "assistant", "content": "Rain.", "tool_calls": []}
    assert "Rain." in render(tokenizer, [user, nothing, user], TOOLS)


@pytest.mark.parametrize(
    ("template", "tool_format", "reasoning_format"),
    [
        ("qwen2.5", HERMES, None),
        ("qwen3", HERMES, THINK),
        ("hermes-3", HERMES, None),
        ("smollm2", HERMES, None),
        ("llama-3.1", LLAMA, None),
        ("llama-3.2", LLAMA, None),
        ("mistral-nemo", MISTRAL, None),
    ],
)
def test_formats_are_known_by_the_template(vocabulary: Path, template: str, tool_format, reasoning_format) -> None:
    style = TurnStyle(open_tokenizer(vocabulary, template))
    assert style.tool_format is tool_format
    assert style.reasoning_format is reasoning_format
