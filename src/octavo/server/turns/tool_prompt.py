"""Tools for models whose chat template knows none: the messages themselves say what there is and what was called."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from octavo.server.turns.formats import HERMES

_INSTRUCTIONS = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""  # Qwen2.5's words, which other models follow, too


def reads_tools(template: str) -> bool:
    """Whether a chat template does anything with tools."""
    return re.search(r"\btools\b", template) is not None


def write_tools(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages with the tools in the system message, and with calls and their results as plain text."""
    written = [_plain_message(message) for message in messages]
    if not tools:
        return written
    instructions = _INSTRUCTIONS.format(tools="\n".join(_json(tool) for tool in tools))
    if written[0]["role"] not in ("system", "developer"):
        return [{"role": "system", "content": instructions}, *written]
    return [written[0] | {"content": f"{_text(written[0])}\n\n{instructions}"}, *written[1:]]


def _plain_message(message: Mapping[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{_text(message)}\n</tool_response>"}
    if not message.get("tool_calls"):
        return dict(message)
    calls = [call["function"] for call in message["tool_calls"]]
    bodies = [f"{HERMES.before_name}{c['name']}{HERMES.before_arguments}{_json(c['arguments'])}}}" for c in calls]
    written = HERMES.opening + HERMES.between.join(bodies) + HERMES.closing
    rest = {name: value for name, value in message.items() if name != "tool_calls"}
    return rest | {"content": f"{_text(message)}\n{written}".lstrip()}


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
