from __future__ import annotations

import json
import math
from typing import Any

import pytest

from octavo.core.sampling_params import (
    MAX_CHOICES,
    MAX_GRAMMAR_BYTES,
    ParameterError,
    SamplingParams,
    StructuredOutputsParams,
)


def test_schemas_with_equal_words_are_equal():
    compact = StructuredOutputsParams(json={"type": "object", "required": ["b", "a"]})
    spaced = StructuredOutputsParams(json='{ "type" : "object",\n"required":["b","a"]}')
    assert compact == spaced
    assert hash(compact) == hash(spaced)
    assert compact.constraint == ("json", '{"type":"object","required":["b","a"]}')


def test_the_order_of_keys_is_kept_for_it_is_the_order_in_the_output():
    assert StructuredOutputsParams(json={"b": 1, "a": 2}) != StructuredOutputsParams(json={"a": 2, "b": 1})


@pytest.mark.parametrize(
    ("field", "kind", "source"),
    [
        ({"regex": "[a-z]+"}, "regex", "[a-z]+"),
        ({"grammar": 'start: "a"'}, "grammar", 'start: "a"'),
        ({"json_object": True}, "json", '{"type":"object"}'),
    ],
)
def test_a_constraint_is_a_kind_and_a_text(field, kind, source):
    assert StructuredOutputsParams(**field).constraint == (kind, source)


def test_choices_come_as_any_sequence_and_become_json():
    params = StructuredOutputsParams(choice=["yes", "né"])  # type: ignore[arg-type]
    assert params.choice == ("yes", "né")
    assert params.constraint[0] == "choice"
    assert json.loads(params.constraint[1]) == ["yes", "né"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "holds nothing; give exactly one of json, regex"),
        ({"regex": "a", "json_object": True}, "holds regex and json_object; give exactly one"),
        ({"json": "["}, "json is no JSON: Expecting value"),
        ({"json": "[1]"}, "json is a list; it must be a schema"),
        ({"json": {"maximum": math.nan}}, "json is no JSON: Out of range"),
        ({"json": "[" * 100_000}, "json is nested too deeply"),
        ({"regex": ""}, "regex is ''; it must be a string that is not empty"),
        ({"regex": 3}, "regex is 3; it must be a string"),
        ({"regex": "\ud800"}, "regex holds half a surrogate pair at character 0"),
        ({"choice": []}, "choice is empty"),
        ({"choice": ["a", ""]}, "holds ''"),
        ({"choice": "ab"}, "must be a list"),
        ({"choice": ["a"] * (MAX_CHOICES + 1)}, f"at most {MAX_CHOICES} are allowed"),
        ({"choice": ["\ud800"]}, "choice holds half a surrogate pair"),
        ({"json_object": 1}, "json_object is 1; it must be true or false"),
        ({"grammar": "a" * (MAX_GRAMMAR_BYTES + 1)}, f"at most {MAX_GRAMMAR_BYTES} are allowed: simplify it"),
    ],
)
def test_what_has_no_form_is_refused(fields: dict[str, Any], message):
    with pytest.raises(ParameterError) as caught:
        StructuredOutputsParams(**fields)
    assert message in str(caught.value)
    assert caught.value.param == "structured_outputs"


def test_sampling_params_take_nothing_else_for_it():
    with pytest.raises(ParameterError, match="is a dict; make a StructuredOutputsParams"):
        SamplingParams(structured_outputs={"regex": "a"})  # type: ignore[arg-type]
