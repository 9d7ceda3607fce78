"""Grammars of whole turns, in llguidance's Lark: reasoning, then what an answer has to be.

A marker that is a special token has an id, and no letters could stand for it; any other is written in letters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence

from octavo.core.sampling_params import StructuredOutputsParams
from octavo.server.turns.formats import ReasoningFormat, ToolFormat
from octavo.server.turns.tools import Function
from octavo.structured.lark import lark_rule

SpecialId = Callable[[str], int | None]  # the id of a special token; None: it is none

_TEXT = "/(?s:.*)/"
# What an answer may be, in the rules below.
PRESCRIBED = "prescribed"
CALLS = "calls"
CALLS_OR_PRESCRIBED = "calls | prescribed"
TEXT_WITH_CALLS = f"(text_before called)? {_TEXT}"

_NO_PARAMETERS = {"properties": {}, "additionalProperties": False}


def turn_grammar(
    answer: str, rules: Iterable[str], reasoning: ReasoningFormat | None, special_id: SpecialId, *, is_reasoning: bool
) -> str:
    """The grammar of a turn with this answer, one of those above. Without `is_reasoning`, it may reason or not."""
    if reasoning is None:
        return "\n".join(["start: answer", f"answer: {answer}", *rules])
    begin = "" if is_reasoning else _symbol(reasoning.begin, special_id)
    thoughts = f"({begin} thoughts){'' if is_reasoning else '?'}"
    start = [
        f"start: {thoughts} BLANKS answer",
        r"BLANKS: /\s{0,2}/",
        _text_until("thoughts", reasoning.end, special_id),
    ]
    return "\n".join([*start, f"answer: {answer}", *rules])


def prescribed_rules(params: StructuredOutputsParams) -> list[str]:
    """What the parameters ask for, unless that is a grammar, which has rules of its own."""
    kind, source = params.constraint
    return [f"prescribed: {lark_rule(kind, source)}"]


def calls_rules(
    functions: Sequence[Function], tool_format: ToolFormat, special_id: SpecialId, *, is_parallel: bool
) -> list[str]:
    """Calls of these functions, one or, if `is_parallel`, more."""

    def written(text: str) -> str:
        # A brace by itself: behind it the lexer can still choose between a call and another JSON object.
        pieces = re.split("(" + "|".join(map(re.escape, (*tool_format.markers, "{"))) + ")", text)
        return " ".join(_symbol(piece, special_id) for piece in pieces if piece)

    begin = tool_format.begin[0]
    opening = tool_format.opening.removeprefix(begin)
    more = f"({written(tool_format.between)} call)*" if is_parallel else ""
    rules = [
        f"calls: {written(tool_format.opening.removesuffix(opening))} called",
        f"called: {written(opening)} call {more} {written(tool_format.closing)}",
        "call: " + " | ".join(f"call_{i}" for i in range(len(functions))),
        _text_until("text_before", begin, special_id),
    ]
    for i, function in enumerate(functions):
        head = written(tool_format.before_name + function.name + tool_format.before_arguments)
        schema = _NO_PARAMETERS if function.parameters is None else function.parameters
        rules.append(f"call_{i}: {head} arguments_{i} {written(tool_format.after_arguments)}")
        rules.append(f"arguments_{i}: {lark_rule('json', json.dumps({**schema, 'type': 'object'}))}")
    return rules


def _text_until(name: str, marker: str, special_id: SpecialId) -> str:
    """A rule for any text up to the marker, and the marker."""
    if special_id(marker) is None:
        return f"{name}[lazy]: /(?s:.*){re.escape(marker).replace('/', chr(92) + '/')}/"
    return f"{name}: {_TEXT} {_symbol(marker, special_id)}"


def _symbol(text: str, special_id: SpecialId) -> str:
    token_id = special_id(text)
    return json.dumps(text) if token_id is None else f"<[{token_id}]>"
