"""The input of a response becomes a conversation in the chat form."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from octavo.server.errors import invalid
from octavo.server.request_body import convert
from octavo.server.turns.tools import Tool

Message = dict[str, Any]  # as ChatMessage has it

TEXT_PARTS = ("input_text", "output_text", "text", "refusal")
# Tools that somebody else's servers run. A client that offers them can do without.
FOREIGN_TOOLS = ("custom", "namespace", "mcp", "shell", "local_shell", "apply_patch", "tool_search", "code_interpreter")
FOREIGN_TOOL_PREFIXES = ("web_search", "file_search", "image_generation", "computer")


class Part(msgspec.Struct, frozen=True):
    """A piece of what was said."""

    type: str
    text: str | None = None
    refusal: str | None = None


class MessageItem(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    """Something said. The type may be left out."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part]


class CallItem(msgspec.Struct, frozen=True, tag_field="type", tag="function_call"):
    """A call that the model asked for."""

    call_id: str
    name: str
    arguments: str = ""


class CallOutputItem(msgspec.Struct, frozen=True, tag_field="type", tag="function_call_output"):
    """What came of it, or what the client reports unasked: Codex does so in this form, without a call_id."""

    output: str | list[Part]
    call_id: str | None = None


class ReasoningItem(msgspec.Struct, frozen=True, tag_field="type", tag="reasoning"):
    """What the model thought."""

    content: list[Part] | None = None


InputItem = MessageItem | CallItem | CallOutputItem | ReasoningItem


def input_messages(value: str | list[dict[str, Any]]) -> list[Message]:
    """The messages of an input. What belongs to one turn of the assistant becomes one message."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    items = convert([{"type": "message", **item} for item in value], list[InputItem], "input")
    messages: list[Message] = []
    for i, item in enumerate(items):
        param = f"input[{i}]"
        match item:
            case MessageItem("assistant", content):
                _open_assistant(messages, "content")["content"] = _text(content, f"{param}.content")
            case MessageItem(role, content):
                messages.append({"role": role, "content": _text(content, f"{param}.content")})
            case CallItem(call_id, name, arguments):
                call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
                _open_assistant(messages).setdefault("tool_calls", []).append(call)
            case CallOutputItem(output, call_id):
                sender = {"role": "user"} if call_id is None else {"role": "tool", "tool_call_id": call_id}
                messages.append({**sender, "content": _text(output, f"{param}.output")})
            case ReasoningItem(parts):
                thoughts = "".join(part.text or "" for part in parts or ())
                _open_assistant(messages, "reasoning")["reasoning"] = thoughts
    return messages


def function_tools(tools: list[dict[str, Any]]) -> list[Tool]:
    """The functions among the tools. Tools that are run elsewhere are left out; raises the error for any other."""
    functions = []
    for i, tool in enumerate(tools):
        kind = tool.get("type")
        if kind == "function":
            given = {name: value for name, value in tool.items() if value is not None}
            functions.append({"type": "function", "function": given})
        elif kind not in FOREIGN_TOOLS and not str(kind).startswith(FOREIGN_TOOL_PREFIXES):
            raise invalid(
                f"tools[{i}].type", f"tools[{i}].type is {kind!r}; the type of what you can run is 'function'"
            )
    return convert(functions, list[Tool], "tools")


def _open_assistant(messages: list[Message], *closing: str) -> Message:
    """The assistant's message that the next item belongs to; one that has a field in `closing`, or calls, is over."""
    is_open = bool(messages) and messages[-1]["role"] == "assistant"
    if not is_open or any(name in messages[-1] for name in (*closing, *(["tool_calls"] if closing else ()))):
        messages.append({"role": "assistant"})
    return messages[-1]


def _text(content: str | list[Part], param: str) -> str | list[Message]:
    """The content in the chat form."""
    if isinstance(content, str):
        return content
    for i, part in enumerate(content):
        if part.type not in TEXT_PARTS:
            raise invalid(f"{param}[{i}].type", f"{param}[{i}].type is {part.type!r}; this model reads only text")
        if part.text is None and part.refusal is None:
            raise invalid(f"{param}[{i}].text", f"{param}[{i}].text is missing")
    return [{"type": "text", "text": part.text or part.refusal or ""} for part in content]
