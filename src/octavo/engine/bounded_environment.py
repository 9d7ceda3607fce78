"""BoundedEnvironment: Jinja for templates that nobody has looked at: no way out, no work or value without bound.

Jinja's sandbox keeps a template from Python's internals. Here every turn of a loop and every call of a macro looks at
the clock besides, and whatever makes a text longer looks at its size before.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jinja2 import nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_RENDER_S = 2.0  # of CPU: that a busy machine is slow is not the fault of who sent the messages
MAX_VALUE_SIZE = 16_000_000  # characters or items
MAX_INTEGER_BITS = 4096

_end_s: ContextVar[float] = ContextVar("end_s")  # what the thread's clock may show at most


class BoundExceededError(Exception):
    """The template takes too long, or makes too large a value."""


@contextmanager
def bounded_time() -> Iterator[None]:
    """Renderings in this context, by this thread, have MAX_RENDER_S from now on."""
    token = _end_s.set(time.thread_time() + MAX_RENDER_S)
    try:
        yield
    finally:
        _end_s.reset(token)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """An environment for such templates. Render them in `bounded_time`."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        del self.globals["lipsum"]  # filler text, as much as one asks for
        self.filters |= {name: _bounded(self.filters[name], size) for name, size in _FILTER_SIZES.items()}

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """What the function returns. Raises BoundExceededError before a method makes too long a text."""
        method = getattr(function, "__wrapped__", function)  # the sandbox wraps str.format
        text, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
        if isinstance(text, str | bytes) and name in _METHOD_SIZES:
            args = tuple(map(_at_hand, args))
            given = {key: value for key, value in kwargs.items() if not key.startswith("_")}  # the rest is Jinja's own
            _check_size(_METHOD_SIZES[name](text, *args, **given))
        return super().call(context, function, *args, **kwargs)

    def concat(self, pieces: Iterable[str]) -> str:
        """The text of a block or macro. Raises BoundExceededError if it would be too long."""
        pieces = list(pieces)
        _check_size(sum(map(len, pieces)))
        return "".join(pieces)

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
            case "%", str(), _:
                _check_size(_formatted_size(left))
        return super().call_binop(context, operator, left, right)

    def look_at_clock(self) -> None:
        """Raise BoundExceededError if the time is over."""
        if time.thread_time() > _end_s.get():
            raise BoundExceededError(f"it takes more than {MAX_RENDER_S:g} s of CPU")

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


def _bounded(function: Callable[..., Any], size: Callable[..., int]) -> Callable[..., Any]:
    """The filter, which looks at what it is about to make. Some get Jinja's context before the value."""
    num_before = int(hasattr(function, "jinja_pass_arg"))

    @functools.wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        args = tuple(map(_at_hand, args))
        _check_size(size(*args[num_before:], **kwargs))
        return function(*args, **kwargs)

    return bounded


def _at_hand(value: Any) -> Any:
    """The items of an iterator, which come from filters, so that they can be looked at and then used."""
    if not isinstance(value, Iterator):
        return value
    items, size = [], 0
    for item in value:
        items.append(item)
        size += _size(item)
        _check_size(size)
    return items


def _size(value: Any) -> int:
    return len(value) if isinstance(value, Sized) else 1


def _padded_size(text: Any, width: int = 80, *_: Any) -> int:
    return max(len(str(text)), width)


def _expanded_size(text: str, tabsize: int = 8) -> int:
    return len(text) + text.count("\t") * tabsize


def _indented_size(text: Any, width: int | str = 4, *_: Any, **__: Any) -> int:
    return len(str(text)) + (str(text).count("\n") + 1) * (width if isinstance(width, int) else len(width))


def _replaced_size(text: Any, old: Any, new: Any, *_: Any) -> int:
    return len(str(text)) + str(text).count(str(old)) * len(str(new))


def _joined_size(items: Any, separator: Any = "", *_: Any, **__: Any) -> int:
    sizes = list(map(_size, items))
    return sum(sizes) + len(sizes) * len(str(separator))


def _formatted_size(template: Any, *_: Any, **__: Any) -> int:
    """Widths are taken as they stand there; one that comes with the values might be anything."""
    if re.search(r"%[^a-zA-Z%]*\*|\{[^{}]*\{", str(template)):
        raise BoundExceededError("it formats with a width that is not written out")
    return len(str(template)) + sum(int(width[:20]) for width in re.findall(r"\d{4,}", str(template)))


_METHOD_SIZES: dict[str, Callable[..., int]] = {
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), _padded_size),
    "expandtabs": _expanded_size,
    "replace": _replaced_size,
    "join": lambda separator, items: _joined_size(items, separator),
    "format": _formatted_size,
    "format_map": _formatted_size,
}
_FILTER_SIZES: dict[str, Callable[..., int]] = {
    "center": _padded_size,
    "indent": _indented_size,
    "replace": _replaced_size,
    "join": _joined_size,
    "format": _formatted_size,
}
