"""Tools: what a request lets the model call, and whether it must."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from octavo.server.errors import ApiError, invalid

ToolName = Annotated[str, Meta(pattern=r"^[\w.-]{1,128}$")]


class Function(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function of the client's, as the model is told of it."""

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None  # a JSON Schema; None: it takes none
    strict: bool | None = None


class Tool(msgspec.Struct, frozen=True):
    """Something to call. Only functions are served."""

    type: Literal["function"]
    function: Function

    def for_template(self) -> dict[str, Any]:
        """The tool as templates read it."""
        function = self.function
        described: dict[str, Any] = {"name": function.name}
        if function.description is not None:
            described["description"] = function.description
        if function.parameters is not None:
            described["parameters"] = function.parameters
        return {"type": "function", "function": described}


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether tools are called: not at all, as the model likes, or in any case; which, and how many in a turn."""

    mode: Literal["none", "auto", "required"] = "auto"
    names: tuple[str, ...] | None = None  # None: all
    is_parallel: bool = True  # else one call at most

    def select(self, tools: Sequence[Tool]) -> list[Tool]:
        """Those of the tools that may be called."""
        if self.mode == "none":
            return []
        return [tool for tool in tools if self.names is None or tool.function.name in self.names]


def read_tool_choice(value: str | dict[str, Any] | None, tools: Sequence[Tool], *, is_parallel: bool) -> ToolChoice:
    """The choice that the field tool_choice makes among the tools. Raises the error for what is none."""
    choice = _parse_choice(value)
    if choice is None:
        raise _invalid_choice("must be none, auto, required, or an object that names functions")
    known = {tool.function.name for tool in tools}
    if unknown := [name for name in choice.names or () if name not in known]:
        raise _invalid_choice(f"names {unknown[0]!r}, which is not one of the tools")
    if choice.mode == "required" and not choice.select(tools):
        raise _invalid_choice("wants a tool called, but there is none; send tools")
    return replace(choice, is_parallel=is_parallel and choice.is_parallel)


def _parse_choice(value: Any) -> ToolChoice | None:
    """The chat form, and that of responses, which leaves the inner object out."""
    match value:
        case None:
            return ToolChoice()
        case "none" | "auto" | "required":
            return ToolChoice(value)
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function", "name": str(name)}:
            return ToolChoice("required", (name,), is_parallel=False)  # "call that one" is no call to call it again
        case {"type": "allowed_tools", "allowed_tools": dict(allowed)}:
            return _parse_choice({"type": "allowed_tools", **allowed})
        case {"type": "allowed_tools", "mode": "auto" | "required" as mode, "tools": list(tools)}:
            named = [_parse_choice(tool) for tool in tools]
            names = tuple(name for choice in named if choice for name in choice.names or ())
            return ToolChoice(mode, names) if len(names) == len(tools) else None
        case _:
            return None


def _invalid_choice(reason: str) -> ApiError:
    return invalid("tool_choice", f"tool_choice {reason}")
