"""A conversation as the client sends it becomes one as chat templates read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from octavo.server.errors import invalid
from octavo.server.openai.chat_protocol import ChatMessage

RESERVED_VARIABLES = (
    *("messages", "tools", "documents", "chat_template", "add_generation_prompt", "continue_final_message"),
    *("tokenize", "self"),
)


def template_variables(variables: dict[str, Any]) -> dict[str, Any]:
    """The client's variables for the template. Raises the error for one that is a field of the request."""
    for name in RESERVED_VARIABLES:
        if name in variables:
            raise invalid(
                "chat_template_kwargs", f"chat_template_kwargs holds {name}, which is no variable of the template"
            )
    return variables


def template_messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """The messages, checked. Raises the error for a missing content, for one that is not text, for a broken call."""
    if not messages:
        raise invalid("messages", "messages is empty; send at least one message")
    return [_template_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _template_message(message: ChatMessage, param: str) -> dict[str, Any]:
    _check_content(message, f"{param}.content")
    rendered: dict[str, Any] = msgspec.to_builtins(message)
    if reasoning := message.reasoning_content or message.reasoning:
        rendered |= {"reasoning_content": reasoning, "reasoning": reasoning}  # templates know it under either name
    if message.tool_calls:
        calls = enumerate(message.tool_calls)
        rendered["tool_calls"] = [_tool_call(call, f"{param}.tool_calls[{i}]") for i, call in calls]
    # Templates ask `is defined`: what was not sent must not be there, nor calls that are none.
    return {name: value for name, value in rendered.items() if value is not None and (value or name != "tool_calls")}


def _check_content(message: ChatMessage, param: str) -> None:
    if message.content is None and message.role != "assistant":  # which may have called tools and said nothing
        raise invalid(param, f"{param} is missing; a {message.role} message needs it")
    for i, part in enumerate(message.content if isinstance(message.content, list) else ()):
        if part.type != "text":
            raise invalid(f"{param}[{i}].type", f"{param}[{i}].type is {part.type!r}; this model reads only text")


def _tool_call(call: dict[str, Any], param: str) -> dict[str, Any]:
    """The call with its arguments as an object: templates want that, the API says a string of JSON."""
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise invalid(f"{param}.function", f"{param}.function must be an object with a name")
    if not isinstance(call.get("id") or "", str):
        raise invalid(f"{param}.id", f"{param}.id must be a string")
    arguments = function.get("arguments") or "{}"
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, RecursionError):
            path = f"{param}.function.arguments"
            raise invalid(path, f"{path} is not valid JSON") from None
    sent = {name: value for name, value in call.items() if value is not None}
    return sent | {"function": function | {"arguments": arguments}}
