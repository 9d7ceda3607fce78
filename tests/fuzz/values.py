"""Values from a JSON schema: mostly right, often at an edge, sometimes of another kind altogether."""

from __future__ import annotations

import random
from typing import Any

Schema = dict[str, Any]

TEXTS = [
    "",
    "Hi",
    " ",
    "x" * 300,
    "é🦉안녕",
    "\x00\x1f\x7f",
    "</s><s>",
    "{{ 7 * 7 }}{% raw %}",
    "../../etc/passwd",
    "\N{RIGHT-TO-LEFT OVERRIDE}\N{ZERO WIDTH JOINER}",
    "nan",
    "(a+)+$",
]
INTEGERS = [
    -(2**70),
    -(2**63),
    -(2**31),
    -2,
    -1,
    0,
    1,
    2,
    3,
    4,
    20,
    129,
    259,
    320,
    2**31 - 1,
    2**31,
    2**63,
    2**64,
    10**40,
]
NUMBERS = [-1e308, -2.0, -0.0, 1e-320, 1e-9, 0.5, 1.0, 1.5, 2.0, 100.0, 1e30, 1e308]
ODD_VALUES: list[Any] = [None, True, False, "", "Hi", 0, -1, 1.5, 1e300, [], {}, [[]], [None], {"a": []}, [[[[[[1]]]]]]]
MAX_DEPTH = 6


class ValueMaker:
    """Makes values for the schemas of a document, by the draws of `rng`."""

    def __init__(self, rng: random.Random, components: dict[str, Schema]) -> None:
        self._rng = rng
        self._components = components

    def make(self, schema: Schema, depth: int = 0) -> Any:
        """A value for the schema, or, one time in fifty, for none."""
        rng = self._rng
        if rng.random() < 0.02 or depth > MAX_DEPTH:
            return rng.choice(ODD_VALUES)
        if "$ref" in schema:
            return self.make(self._components[schema["$ref"].rpartition("/")[2]], depth)
        if options := schema.get("anyOf") or schema.get("oneOf"):
            return self.make(rng.choice(options), depth)
        if "enum" in schema:
            return rng.choice(schema["enum"])
        if "const" in schema:
            return schema["const"]
        make = {
            "object": self._object,
            "array": self._array,
            "string": self._string,
            "integer": self._integer,
            "number": self._number,
            "boolean": lambda *_: rng.random() < 0.5,
            "null": lambda *_: None,
        }
        return make[schema["type"]](schema, depth) if "type" in schema else self._anything(depth)

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        share = self._rng.choice((0.05, 0.2, 0.5))
        names = [n for n in properties if n in schema.get("required", ()) or self._rng.random() < share]
        value = {name: self.make(properties[name], depth + 1) for name in names}
        if value and self._rng.random() < 0.05:
            del value[self._rng.choice(list(value))]
        if not properties or self._rng.random() < 0.05:
            more = schema.get("additionalProperties")
            for _ in range(self._rng.randrange(3)):
                key = self._rng.choice([*TEXTS, "5", "258", "259", "-1"])
                value[key] = self.make(more if isinstance(more, dict) else {}, depth + 1)
        return value

    def _array(self, schema: Schema, depth: int) -> list[Any]:
        num_items = self._rng.choice((0, 1, 1, 2, 3, self._rng.randrange(40)))
        return [self.make(schema.get("items", {}), depth + 1) for _ in range(num_items)]

    def _string(self, schema: Schema, depth: int) -> str:
        return self._rng.choice(TEXTS) + self._rng.choice(("", "", self._rng.choice(TEXTS)))

    def _integer(self, schema: Schema, depth: int) -> int:
        low, high = schema.get("minimum", -5), schema.get("maximum", 300)
        near = [low, high, low - 1, high + 1]
        small = self._rng.randint(low, max(low, min(high, 5)))
        return int(self._rng.choice([small] * 6 + [self._rng.choice(near), self._rng.choice(INTEGERS)]))

    def _number(self, schema: Schema, depth: int) -> float:
        edges = [schema[name] for name in ("minimum", "exclusiveMinimum", "maximum") if name in schema]
        return self._rng.choice([*edges, *edges, self._rng.choice(NUMBERS), self._rng.uniform(0.0, 1.0)])

    def _anything(self, depth: int) -> Any:
        kind = self._rng.choice(("string", "integer", "number", "boolean", "null", "array", "object"))
        return self.make({"type": kind}, depth + 1)
