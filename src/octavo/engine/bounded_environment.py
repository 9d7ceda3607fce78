"""BoundedEnvironment: Jinja for templates that nobody has looked at: no way out, no work or value without bound.

Jinja's sandbox keeps a template from Python's internals. Here every turn of a loop and every call of a macro looks at
the clock besides, and values that grow by an operator look at their size.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jinja2 import nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_RENDER_S = 2.0
MAX_VALUE_SIZE = 16_000_000  # characters or items
MAX_INTEGER_BITS = 4096

_end_s: ContextVar[float] = ContextVar("end_s")  # when the rendering under way must be done


class BoundExceededError(Exception):
    """The template takes too long, or makes too large a value."""


@contextmanager
def bounded_time() -> Iterator[None]:
    """Renderings in this context have MAX_RENDER_S from now on."""
    token = _end_s.set(time.monotonic() + MAX_RENDER_S)
    try:
        yield
    finally:
        _end_s.reset(token)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """An environment for such templates. Render them in `bounded_time`."""

    intercepted_binops = frozenset({"+", "*", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """The operator's result. Raises BoundExceededError before it gets too large."""
        match operator, left, right:
            case "**", int(), int():
                _check("number of bits", left.bit_length() * right, MAX_INTEGER_BITS)
            case "*", int(), int():
                _check("number of bits", left.bit_length() + right.bit_length(), MAX_INTEGER_BITS)
            case ("*", int(), Sized()) | ("*", Sized(), int()):
                length, factor = (len(right), left) if isinstance(left, int) else (len(left), right)
                _check_size(length * factor)
            case "+", Sized(), Sized():
                _check_size(len(left) + len(right))
        return super().call_binop(context, operator, left, right)

    def look_at_clock(self) -> None:
        """Raise BoundExceededError if the time is over."""
        if time.monotonic() > _end_s.get():
            raise BoundExceededError(f"it takes more than {MAX_RENDER_S:g} s")

    def look_at_size(self, text: str) -> str:
        """The text. Raises BoundExceededError if it is too large."""
        _check_size(len(text))
        return text

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        _LookInserter().visit(template)
        template.set_environment(self)
        return template


class _LookInserter(NodeTransformer):
    """Changes a parsed template. `~` is looked at here since the sandbox does not take it for an operator."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        return self._begin_with_look(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        return self._begin_with_look(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:  # noqa: N802
        return _call("look_at_size", self.generic_visit(node))

    def _begin_with_look(self, node: nodes.For | nodes.Macro) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call("look_at_clock")).set_lineno(node.lineno))
        return node


def _call(method: str, *arguments: Any) -> nodes.Call:
    # By way of the environment: a name is what a template may set to something else.
    return nodes.Call(nodes.EnvironmentAttribute(method), list(arguments), [], None, None)


def _check_size(size: int) -> None:
    _check("value of size", size, MAX_VALUE_SIZE)


def _check(noun: str, size: int, limit: int) -> None:
    if size > limit:
        raise BoundExceededError(f"it makes a {noun} {size}; at most {limit} is allowed")
