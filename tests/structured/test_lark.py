"""Every kind of constraint in one notation."""

from __future__ import annotations

import json

import pytest

from octavo.core.sampling_params import ParameterError
from octavo.structured.lark import lark_grammar, lark_rule
from tests.structured.byte_vocabulary import compile_grammar, is_match


def test_only_a_format_that_is_known_stays_and_data_is_left_alone():
    schema = {
        "type": "object",
        "format": "none-that-is-known",
        "properties": {
            "format": {"type": "string", "format": "date"},
            "const": {"type": "string", "format": "binary"},
            "at": {"const": {"format": "binary"}},
        },
        "anyOf": [{"format": "path"}, {"enum": [{"format": "path"}]}],
    }
    [_, body] = lark_rule("json", json.dumps(schema)).split(" ", 1)
    kept = json.loads(body)
    del kept["x-guidance"]
    assert kept == {
        "type": "object",
        "properties": {
            "format": {"type": "string", "format": "date"},
            "const": {"type": "string"},
            "at": {"const": {"format": "binary"}},
        },
        "anyOf": [{}, {"enum": [{"format": "path"}]}],
    }


def test_a_schema_may_set_its_own_options():
    schema = {"type": "array", "items": {"type": "integer"}, "x-guidance": {"whitespace_flexible": False}}
    grammar = compile_grammar("json", json.dumps(schema))
    assert is_match(grammar, "[1,2]") and not is_match(grammar, "[1, 2]")
    overlapping = {"oneOf": [{"type": "integer"}, {"type": "integer", "minimum": 3}]}
    with pytest.raises(ValueError, match="oneOf"):
        compile_grammar("json", json.dumps(overlapping))
    assert is_match(compile_grammar("json", json.dumps({**overlapping, "x-guidance": {"coerce_one_of": True}})), "5")


def test_the_options_of_a_grammar_come_last_where_they_cannot_be_undone():
    for kind, source in (("regex", "a"), ("json", "{}"), ("choice", '["a"]'), ("grammar", 'start: "a"')):
        assert lark_grammar(kind, source).rstrip().endswith('%llguidance {"no_forcing": true}')


def test_a_schema_may_be_nested_too_deeply_to_read():
    text = '{"items":' * 100_000 + "{}" + "}" * 100_000
    with pytest.raises(ParameterError, match="nested too deeply"):
        lark_rule("json", text)


def test_a_rule_stands_for_no_grammar():
    with pytest.raises(ValueError, match="no rule can stand for a grammar"):
        lark_rule("grammar", 'start: "a"')
