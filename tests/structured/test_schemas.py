"""300 schemas as people write them: what a grammar lets through is what a validator of JSON Schema lets through."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest

from octavo.structured.grammar import Grammar
from tests.structured.byte_vocabulary import EOS_IDS, allowed_ids, compile_grammar, ids_of, is_match, text_of

NUM_SCHEMAS = 300
CLOSING_IDS = ids_of('"}],')
VALUES: tuple[Any, ...] = (None, True, -1, 10**6, 1.5, "", "z" * 50, "2024-02-30", [], [1], {}, {"a": 1})


class SchemaWriter:
    """Nested objects and arrays, ranges, lengths, enums, patterns, formats, unions and references."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def schema(self) -> dict[str, Any]:
        definitions = {f"part{i}": self._value(1) for i in range(2)}
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **self._object(3), "$defs": definitions}

    def _value(self, depth: int) -> dict[str, Any]:
        leaves = [self._string, self._number, self._choice]
        nests = [lambda: self._object(depth - 1), lambda: self._array(depth - 1), lambda: self._union(depth - 1)]
        return self._rng.choice(leaves + nests if depth > 0 else leaves)()

    def _object(self, depth: int) -> dict[str, Any]:
        names = self._rng.sample(["id", "name", "kind", "size", "when", "tags", "né", "a b"], self._rng.randint(1, 4))
        properties = {
            name: {"$ref": f"#/$defs/part{self._rng.randint(0, 1)}"}
            if depth >= 2 and self._rng.random() < 0.15
            else self._value(depth)
            for name in names
        }
        required = self._rng.sample(names, self._rng.randint(0, len(names)))
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def _array(self, depth: int) -> dict[str, Any]:
        least = self._rng.randint(0, 2)
        return {"type": "array", "items": self._value(depth), "minItems": least, "maxItems": least + 2}

    def _union(self, depth: int) -> dict[str, Any]:
        return {"anyOf": [self._value(depth), {"type": "null"}], "description": "or nothing"}

    def _string(self) -> dict[str, Any]:
        limits: dict[str, Any] = self._rng.choice(
            [
                {"minLength": 1, "maxLength": 9},
                {"pattern": "^[A-Z][a-z]{1,5}(-[0-9]+)?$", "maxLength": 20},
                {"format": "date"},
                {"format": "ipv4"},
                {"format": "none-that-is-known", "maxLength": 5},
            ]
        )
        return {"type": "string", "title": "a text", **limits}

    def _number(self) -> dict[str, Any]:
        low = self._rng.randint(-50, 50)
        return {"type": "integer", "minimum": low, "exclusiveMaximum": low + self._rng.randint(1, 500)}

    def _choice(self) -> dict[str, Any]:
        return self._rng.choice([{"type": "boolean"}, {"enum": ["on", "off", None, 3]}, {"const": "fixed"}])


def write(grammar: Grammar, rng: random.Random) -> str:
    """Any output of the grammar; one that does not last."""
    matcher = grammar.matcher()
    written: list[int] = []
    while not matcher.is_complete:
        allowed = allowed_ids(matcher)
        closing = [token_id for token_id in allowed if token_id in CLOSING_IDS]
        token_id = rng.choice(closing if closing and rng.random() < 0.5 else allowed)
        if token_id in EOS_IDS:
            break
        matcher.accept([token_id])
        written.append(token_id)
    return text_of(written)


def changed(value: Any, rng: random.Random) -> Any:
    """The value with another somewhere inside; keys stay in their order."""
    if value and isinstance(value, dict):
        key = rng.choice(list(value))
        return {name: changed(item, rng) if name == key else item for name, item in value.items()}
    if value and isinstance(value, list) and rng.random() < 0.7:
        return [changed(value[0], rng), *value[1:]]
    return rng.choice(VALUES)


@pytest.mark.parametrize("seeds", [range(part, NUM_SCHEMAS, 4) for part in range(4)], ids=str)
def test_a_grammar_and_a_validator_agree(seeds):
    verdicts = []
    for seed in seeds:
        schema, rng = SchemaWriter(seed).schema(), random.Random(seed)
        validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
        grammar = compile_grammar("json", json.dumps(schema))
        for _ in range(2):
            text = write(grammar, rng)
            validator.validate(json.loads(text))
            other = changed(json.loads(text), rng)
            verdicts.append(validator.is_valid(other))
            assert is_match(grammar, json.dumps(other, ensure_ascii=False)) == verdicts[-1], (schema, other)
    assert len(set(verdicts)) == 2  # of the changed ones, some are right and some wrong
