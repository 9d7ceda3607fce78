"""Grammars of whole turns, in llguidance's Lark: reasoning, then what an answer has to be.

A marker that is a special token has an id, and no letters could stand for it; any other is written in letters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from octavo.core.sampling_params import StructuredOutputsParams
from octavo.server.tools import Function, ToolChoice
from octavo.server.turn_formats import ReasoningFormat, ToolFormat
from octavo.structured.lark import lark_rule

SpecialId = Callable[[str], int | None]  # the id of a special token; None: it is none

_TEXT = "/(?s:.*)/"
_NO_PARAMETERS = {"properties": {}, "additionalProperties": False}


def turn_grammar(answer: str, reasoning: ReasoningFormat | None, special_id: SpecialId, *, is_reasoning: bool) -> str:
    """The grammar of a turn whose answer is the rule `answer`. Without `is_reasoning`, it may reason or not."""
    if reasoning is None:
        return f"start: answer\n{answer}"
    thoughts = f"thoughts{_text_until(reasoning.end, special_id)}"
    opening = "thoughts" if is_reasoning else f"({_symbol(reasoning.begin, special_id)} thoughts)?"
    return f"start: {opening} BLANKS answer\nBLANKS: /\\s{{0,2}}/\n{thoughts}\n{answer}"


def structured_answer(params: StructuredOutputsParams) -> str | None:
    """The rule `answer` for what the parameters ask; None for a grammar, which has a start of its own."""
    kind, source = params.constraint
    return None if kind == "grammar" else f"answer: {lark_rule(kind, source)}"


def called_answer(
    functions: Sequence[Function], choice: ToolChoice, tool_format: ToolFormat, special_id: SpecialId
) -> str:
    """The rule `answer`: calls of these functions; if they are not required, text with calls behind it, or without."""

    def written(text: str) -> str:
        pieces = re.split("(" + "|".join(map(re.escape, tool_format.markers)) + ")", text)
        return " ".join(_symbol(piece, special_id) for piece in pieces if piece)

    more = f"({written(tool_format.between)} call)*" if choice.is_parallel else ""
    calls = f"call {more} {written(tool_format.closing)}"
    rules = ["call: " + " | ".join(f"call_{i}" for i in range(len(functions)))]
    for i, function in enumerate(functions):
        head = written(tool_format.before_name + function.name + tool_format.before_arguments)
        rules.append(f"call_{i}: {head} arguments_{i} {written(tool_format.after_arguments)}")
        schema = _NO_PARAMETERS if function.parameters is None else function.parameters
        rules.append(f"arguments_{i}: {lark_rule('json', json.dumps({**schema, 'type': 'object'}))}")
    if choice.mode == "required":
        return "\n".join([f"answer: {written(tool_format.opening)} {calls}", *rules])
    begin = tool_format.begin[0]
    rules.append(f"begin{_text_until(begin, special_id)}")
    return "\n".join([f"answer: (begin {written(tool_format.opening.removeprefix(begin))} {calls})? {_TEXT}", *rules])


def _text_until(marker: str, special_id: SpecialId) -> str:
    """The body of a rule, from its name on: any text up to the marker, and the marker."""
    if special_id(marker) is None:
        return f"[lazy]: /(?s:.*){re.escape(marker).replace('/', chr(92) + '/')}/"
    return f": {_TEXT} {_symbol(marker, special_id)}"


def _symbol(text: str, special_id: SpecialId) -> str:
    token_id = special_id(text)
    return json.dumps(text) if token_id is None else f"<[{token_id}]>"
