"""Grammars of turns: what a model may write under them, byte by byte, and that the parser reads the same in it."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from octavo.core.sampling_params import StructuredOutputsParams
from octavo.server.turns.events import TurnChoice
from octavo.server.turns.formats import HERMES, LLAMA, MISTRAL, MISTRAL_PLAIN, MISTRAL_THINK, THINK, ToolFormat
from octavo.server.turns.grammar import (
    CALLS,
    CALLS_OR_PRESCRIBED,
    PRESCRIBED,
    TEXT_WITH_CALLS,
    calls_rules,
    prescribed_rules,
    turn_grammar,
)
from octavo.server.turns.parser import TurnParser
from octavo.server.turns.tools import Function
from octavo.structured.grammar import Grammar, make_tokenizer
from octavo.structured.lark import lark_grammar
from octavo.structured.vocabulary import Vocabulary

MARKERS = ("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<think>", "</think>", "[THINK]", "[/THINK]")
EOS_ID = 256
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "format": "int32"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = Function("weather", "Has a start: and an end ::= too.", SCHEMA)
NOW = Function("now")
GOOD = ("weather", '{"city": "Zürich \\"\\n", "days": 3}')


@cache
def tokenizer():
    """A token for each byte, for the end, and for each marker."""
    tokens = (*(bytes([byte]) for byte in range(256)), b"</s>", *(marker.encode() for marker in MARKERS))
    return make_tokenizer(Vocabulary(tokens, tuple(range(EOS_ID, len(tokens))), (EOS_ID,)))


def special_id(text: str) -> int | None:
    return EOS_ID + 1 + MARKERS.index(text) if text in MARKERS else None


def no_special_id(_: str) -> None:
    return None


def ids_of(text: str, marker_id) -> list[int]:
    ids: list[int] = []
    while text:
        marker = next((known for known in MARKERS if marker_id(known) and text.startswith(known)), "")
        ids += [marker_id(marker)] if marker else text[0].encode()
        text = text[len(marker) or 1 :]
    return ids


@cache
def compiled(grammar: str) -> Grammar:
    return Grammar(tokenizer(), lark_grammar("grammar", grammar))


def accepts(grammar: str, text: str, marker_id) -> bool:
    matcher = compiled(grammar).matcher()
    matcher.accept([*ids_of(text, marker_id), EOS_ID])
    return matcher.error is None


def grammar_of(
    answer: str, functions: list[Function], tools: ToolFormat, marker_id, *more: str, is_parallel=True
) -> str:
    rules = calls_rules(functions, tools, marker_id, is_parallel=is_parallel)
    return turn_grammar(answer, [*rules, *more], None, marker_id, is_reasoning=False)


def written(tools: ToolFormat, *calls: tuple[str, str]) -> str:
    bodies = [tools.before_name + n + tools.before_arguments + a + tools.after_arguments for n, a in calls]
    return tools.opening + tools.between.join(bodies) + tools.closing


each_format = pytest.mark.parametrize("tools", [HERMES, LLAMA, MISTRAL, MISTRAL_PLAIN])
each_vocabulary = pytest.mark.parametrize("marker_id", [special_id, no_special_id])


@each_format
@each_vocabulary
def test_required_calls(tools: ToolFormat, marker_id) -> None:
    grammar = grammar_of(CALLS, [WEATHER, NOW], tools, marker_id)
    calls = [GOOD, ("now", "{}")]
    assert accepts(grammar, written(tools, *calls), marker_id)
    parser, choice = TurnParser(0, tool_format=tools, tool_names=["weather", "now"]), TurnChoice(0)
    for event in parser.add(written(tools, *calls), is_last=True):
        choice.add(event)
    assert [(call.name, call.arguments) for call in choice.tool_calls] == calls and choice.text == ""
    for wrong in [("other", "{}"), ("now", '{"a": 1}'), ("weather", "{}"), ("weather", '{"city": 1}')]:
        assert not accepts(grammar, written(tools, wrong), marker_id)
    for wrong_text in ["", "Hm.", written(tools, GOOD)[:-1], f"Hm. {written(tools, GOOD)}"]:
        assert not accepts(grammar, wrong_text, marker_id)
    one = grammar_of(CALLS, [WEATHER, NOW], tools, marker_id, is_parallel=False)
    assert accepts(one, written(tools, GOOD), marker_id) and not accepts(one, written(tools, *calls), marker_id)


@pytest.mark.parametrize("tools", [HERMES, MISTRAL, MISTRAL_PLAIN])
@each_vocabulary
def test_strict_calls_behind_any_text(tools: ToolFormat, marker_id) -> None:
    grammar = grammar_of(TEXT_WITH_CALLS, [WEATHER], tools, marker_id)
    for text in ["", "Hm.", 'A < B {"x": 1}\né', written(tools, GOOD), f"Hm.\n{written(tools, GOOD)}"]:
        assert accepts(grammar, text, marker_id)
    for wrong in [written(tools, ("other", "{}")), f"Hm. {written(tools, ('weather', '{}'))}"]:
        assert not accepts(grammar, wrong, marker_id)


@each_vocabulary
@pytest.mark.parametrize("reasoning", [THINK, MISTRAL_THINK])
def test_reasoning_comes_before_what_is_prescribed(reasoning, marker_id) -> None:
    thoughts = f'Hm. {{"x": 1}} é\n{reasoning.end}'
    for params, right, wrong in [
        (StructuredOutputsParams(json={"type": "integer"}), "12", "x"),
        (StructuredOutputsParams(choice=("yes", "no/ä")), "no/ä", "no"),
        (StructuredOutputsParams(regex="a/b+"), "a/bb", "a/"),
        (StructuredOutputsParams(json_object=True), '{"a": []}', "[]"),
    ]:
        rules = prescribed_rules(params)
        free = turn_grammar(PRESCRIBED, rules, reasoning, marker_id, is_reasoning=False)
        is_open = turn_grammar(PRESCRIBED, rules, reasoning, marker_id, is_reasoning=True)
        for before in ("", f"{reasoning.begin}\n{thoughts}\n\n"):
            assert accepts(free, before + right, marker_id) and not accepts(free, before + wrong, marker_id)
        assert accepts(is_open, thoughts + right, marker_id)
        assert not accepts(is_open, right, marker_id) and not accepts(is_open, thoughts + wrong, marker_id)


@each_format
@each_vocabulary
def test_a_prescribed_text_leaves_room_for_calls(tools: ToolFormat, marker_id) -> None:
    prescribed = prescribed_rules(StructuredOutputsParams(json=SCHEMA))
    grammar = grammar_of(CALLS_OR_PRESCRIBED, [WEATHER], tools, marker_id, *prescribed)
    for text in (GOOD[1], written(tools, GOOD)):
        assert accepts(grammar, text, marker_id)
    for wrong in ("Hm.", "{}", written(tools, ("weather", "{}"))):
        assert not accepts(grammar, wrong, marker_id)


def test_a_schema_may_be_anything_that_parameters_are() -> None:
    schemas: list[dict[str, Any] | None] = [
        None,
        {},
        {"properties": {}},
        {"type": ["object", "null"]},
        {"$ref": "#/$defs/a", "$defs": {"a": {}}},
    ]
    for parameters in schemas:
        grammar = grammar_of(CALLS, [Function("f", parameters=parameters)], LLAMA, no_special_id)
        assert accepts(grammar, '{"name": "f", "parameters": {}}', no_special_id), json.dumps(parameters)
        assert not accepts(grammar, '{"name": "f", "parameters": null}', no_special_id)
