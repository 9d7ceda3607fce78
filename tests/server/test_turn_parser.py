"""TurnParser: every format, every cut, and whatever models write instead."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from octavo.server.turns.events import TextDelta, ToolArgumentsDelta, ToolCallStart, TurnChoice
from octavo.server.turns.formats import HERMES, LLAMA, MISTRAL, MISTRAL_PLAIN, THINK, ToolFormat
from octavo.server.turns.parser import TurnParser

FORMATS = {"hermes": HERMES, "llama": LLAMA, "mistral": MISTRAL, "mistral_plain": MISTRAL_PLAIN}
TOOLS = ("search", "f")
CALL = '{"name": "search", "arguments": {"q": "a } \\" {", "n": [1, {"x": null}]}}'
CALL_WITH_HALF_A_PAIR = '<tool_call>{"name": "\\ud800", "arguments": {}}'
TWO_CALLS = '{"name": "f", "parameters": {"a": 1}}; {"name": "f", "parameters": {}}'
ARGUMENTS = '{"q": "a } \\" {", "n": [1, {"x": null}]}'
# Whatever may matter to one of the parsers, to be put together in any order.
SNIPPETS = (
    *("<tool_call>", "</tool_call>", "<tool", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]abc", "<|python_tag|>"),
    *("<think>", "</think>", "</thi", " ", "\n", "[", "]", ",", ";", "{", "}", '"', "'", "\\", "é", "search", "Hm"),
    *(CALL, '{"name": "f", "parameters": {}}', '{"arguments": {"a": 1}, "name": "f"}', '{"name": "other"}'),
    *('"name": "f"', '"arguments": {', "{}", '{"name": "f", "arguments": "{}"}'),
)


def parse(pieces: list[str], tools: ToolFormat | None, **options) -> tuple[str, str, list[tuple[str, str]]]:
    """Reasoning, text and calls."""
    parser = TurnParser(0, tool_format=tools, tool_names=TOOLS, **options)
    choice = TurnChoice(0)
    for piece in pieces:
        for event in parser.add(piece):
            choice.add(event)
    for event in parser.add("", is_last=True):
        choice.add(event)
    assert parser.num_calls == len(choice.tool_calls)
    return choice.reasoning, choice.text, [(call.name, call.arguments) for call in choice.tool_calls]


@st.composite
def cut_texts(draw: st.DrawFn) -> list[str]:
    text = "".join(draw(st.lists(st.sampled_from(SNIPPETS), max_size=8)))
    places = sorted(draw(st.sets(st.integers(0, len(text)), max_size=8)))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


@settings(max_examples=250, deadline=None)
@given(
    cut_texts(), st.sampled_from([None, *FORMATS.values()]), st.sampled_from([None, THINK]), st.sampled_from([None, 1])
)
def test_events_come_to_the_same_however_the_text_is_cut(pieces, tools, reasoning, max_calls) -> None:
    options = {"reasoning_format": reasoning, "max_calls": max_calls}
    whole = parse(["".join(pieces)], tools, **options)
    assert parse(pieces, tools, **options) == whole
    assert parse(list("".join(pieces)), tools, **options) == whole


@settings(max_examples=60, deadline=None)
@given(st.text() | st.lists(st.sampled_from(SNIPPETS)).map("".join))
@example(" \n")
def test_without_formats_all_is_text_as_it_comes(text) -> None:
    parser = TurnParser(0)
    assert [parser.add(piece) for piece in text] == [[TextDelta(0, piece)] for piece in text]
    assert parser.add("", is_last=True) == []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([" ", "\n", "a", "<", "tool", "[TOOL", "{", "é", '"', ">"])).map("".join))
def test_text_without_calls_is_left_as_it_is(text) -> None:
    for tools in FORMATS.values():
        assert parse(list(text), tools) == ("", text, [])


OBJECT = st.dictionaries(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists), max_size=3)


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(list(FORMATS.values())),
    st.lists(st.tuples(st.sampled_from(TOOLS), OBJECT), min_size=1, max_size=3),
    st.sampled_from([None, 2]),
    st.booleans(),
)
def test_calls_come_back_as_they_were_written(tools, calls, indent, is_ascii) -> None:
    written = [(name, json.dumps(arguments, indent=indent, ensure_ascii=is_ascii)) for name, arguments in calls]
    bodies = [tools.before_name + n + tools.before_arguments + a + tools.after_arguments for n, a in written]
    text = tools.opening + tools.between.join(bodies) + tools.closing
    assert parse(list(text), tools) == ("", "", written)
    if tools is not LLAMA:
        assert parse([f"Let me see.\n{text}\n"], tools) == ("", "Let me see.", written)


@pytest.mark.parametrize(
    ("tools", "text", "expected", "calls"),
    [
        (HERMES, f"Hm.\n\n<tool_call>\n{CALL}\n</tool_call>\nDone.\n", "Hm.Done.\n", [("search", ARGUMENTS)]),
        (HERMES, f"<tool_call>[{CALL}, {CALL}]</tool_call>", "", [("search", ARGUMENTS)] * 2),  # SmolLM2
        (HERMES, f"<tool_call>{CALL}}}</tool_call>", "", [("search", ARGUMENTS)]),  # a brace too many
        (HERMES, f"<tool_call>{CALL[:-1]}\n</tool_call>", "", [("search", ARGUMENTS)]),  # a brace too few
        (HERMES, f"<tool_call>{CALL[:-1]}", "", [("search", ARGUMENTS)]),
        (HERMES, f"<tool_call>{CALL}<tool_call>{CALL}", "", [("search", ARGUMENTS)] * 2),
        (HERMES, '<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>', "", [("f", '{"a": 1}')]),
        (HERMES, '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', "", [("f", '{"a": 1}')]),
        (HERMES, '<tool_call>{"name": "f"}</tool_call>', "", [("f", "{}")]),
        (HERMES, '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>', "", [("unknown", "{}")]),
        (HERMES, '<tool_call>{"name": "f", "arguments": {"a": 1, "b', "", [("f", '{"a": 1, "b')]),
        (HERMES, " <tool_call>nothing</tool_call>\n", " <tool_call>nothing</tool_call>\n", []),
        (HERMES, "<tool_call>\n</tool_call>", "<tool_call>\n</tool_call>", []),
        (HERMES, "<tool_call>{'name': 'f'}", "<tool_call>{'name': 'f'}", []),
        (HERMES, '<tool_call>{"name": "f", "arg', '<tool_call>{"name": "f", "arg', []),
        (HERMES, CALL_WITH_HALF_A_PAIR, CALL_WITH_HALF_A_PAIR, []),
        (LLAMA, TWO_CALLS, "", [("f", "{\"a\": 1}"), ("f", "{}")]),
        (LLAMA, '\n{"type": "function", "name": "f", "parameters": {"a": 1}}', "", [("f", '{"a": 1}')]),
        (LLAMA, f"<|python_tag|>{CALL}", "", [("search", ARGUMENTS)]),
        (HERMES, CALL, "", [("search", ARGUMENTS)]),  # Qwen2.5-Coder
        (HERMES, '{"a": {"name": "f", "arguments": {}}}', '{"a": {"name": "f", "arguments": {}}}', []),
        (LLAMA, ' {"name": "Ada", "parameters": {}}', ' {"name": "Ada", "parameters": {}}', []),  # an answer in JSON
        (LLAMA, '{"a": 1}\n', '{"a": 1}\n', []),
        (LLAMA, f"See: {CALL}", f"See: {CALL}", []),
        (MISTRAL, f"[TOOL_CALLS] [{CALL}]", "", [("search", ARGUMENTS)]),
        (MISTRAL, '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}, "id": "123456789"}]', "", [("f", '{"a": 1}')]),
        (MISTRAL, '[TOOL_CALLS]f{"a": 1}', "", [("f", '{"a": 1}')]),
        (MISTRAL_PLAIN, 'Hm.[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{"a": 1}', "Hm.", [("f", '{"a": 1}')]),
        (MISTRAL_PLAIN, "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]search[ARGS]{}", "", [("f", "{}"), ("search", "{}")]),
        (MISTRAL_PLAIN, "[TOOL_CALLS] no call {}", "[TOOL_CALLS] no call {}", []),
    ],
)  # fmt: skip
def test_what_models_write(tools, text, expected, calls) -> None:
    for pieces in ([text], list(text)):
        assert parse(pieces, tools) == ("", expected, calls)


@pytest.mark.parametrize(
    ("text", "is_open", "reasoning", "answer"),
    [
        ("<think>\nHm.\n</think>\n\nYes.\n", False, "Hm.", "Yes.\n"),
        ("\n<think></think>Yes.", False, "", "Yes."),
        ("Hm.</think>Yes.", True, "Hm.", "Yes."),
        ("<think>Hm.</th", False, "Hm.</th", ""),
        ("Hm. ", True, "Hm. ", ""),
        (" Yes. <think>No.</think>", False, "", " Yes. <think>No.</think>"),
        (" <thin", False, "", " <thin"),
    ],
)
def test_reasoning(text, is_open, reasoning, answer) -> None:
    for pieces in ([text], list(text)):
        assert parse(pieces, None, reasoning_format=THINK, is_reasoning=is_open) == (reasoning, answer, [])


def test_a_call_within_the_reasoning_is_a_thought() -> None:
    text = f"<think>Perhaps <tool_call>{CALL}</tool_call>?</think>\n<tool_call>{CALL}</tool_call>"
    expected = (f"Perhaps <tool_call>{CALL}</tool_call>?", "", [("search", ARGUMENTS)])
    assert parse(list(text), HERMES, reasoning_format=THINK) == expected


def test_calls_beyond_the_first_are_left_out_if_one_is_allowed() -> None:
    text = f"Hm.<tool_call>{CALL}</tool_call> And <tool_call>{CALL}</tool_call>"
    assert parse(list(text), HERMES, max_calls=1) == ("", "Hm.", [("search", ARGUMENTS)])


def test_arguments_are_not_held_back() -> None:
    parser = TurnParser(0, tool_format=HERMES, tool_names=TOOLS)
    assert parser.add('<tool_call>{"name": "f", "arguments": ') == []
    start, delta = parser.add('{"a": ')
    assert isinstance(start, ToolCallStart) and (start.name, start.call_index) == ("f", 0)
    assert delta == ToolArgumentsDelta(0, 0, '{"a": ')
    assert parser.add('"x') == [ToolArgumentsDelta(0, 0, '"x')]


def test_an_answer_in_json_is_not_held_back() -> None:
    for first, second in (('{"na', "tion"), ('{"name": "f', 'oo"')):
        parser = TurnParser(0, tool_format=LLAMA, tool_names=TOOLS)
        assert parser.add(first) == []
        assert parser.add(second) == [TextDelta(0, first + second)]


def test_call_ids_differ_and_suit_the_templates() -> None:
    for tools, pattern in ((HERMES, r"call_\w{24}"), (MISTRAL, r"\w{9}")):
        parser = TurnParser(0, tool_format=tools, tool_names=TOOLS)
        events = parser.add(f"{tools.opening}{CALL}{tools.between}{CALL}")
        ids = [event.call_id for event in events if isinstance(event, ToolCallStart)]
        assert len(set(ids)) == 2
        assert all(re.fullmatch(pattern, call_id) for call_id in ids)
