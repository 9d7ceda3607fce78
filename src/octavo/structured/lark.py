"""What a request may ask for, in one notation: Lark's, as llguidance reads it."""

from __future__ import annotations

import json
from typing import Any

from octavo.core.sampling_params import ParameterError

# Without this the only token allowed inside a text that is certain (a key, a constant) would be the tokenizer's own,
# and finding it means to spell out all of that text, which may be millions of characters long. The last line counts.
_OPTIONS = '\n%llguidance {"no_forcing": true}\n'

# Without this a model that likes blanks may write nothing else.
_JSON_OPTIONS = {"whitespace_pattern": r" |\n[ \t]{0,40}"}

# Any other format is a remark, as JSON Schema has it, and no constraint.
_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"}
_KEYWORDS_OF_MAPS = {"properties", "patternProperties", "$defs", "definitions"}
_KEYWORDS_OF_DATA = {"const", "enum", "default", "examples"}


def lark_grammar(kind: str, source: str) -> str:
    """The grammar of a StructuredOutputsParams.constraint. Raises an exception of any type where there is none."""
    if kind != "grammar":
        return f"start: {lark_rule(kind, source)}{_OPTIONS}"
    from llguidance.gbnf_to_lark import any_to_lark  # not above, as below: it takes long to import

    return any_to_lark(source) + _OPTIONS


def lark_rule(kind: str, source: str) -> str:
    """What a rule has behind its colon to stand for any constraint but a grammar, which has rules of its own.

    Raises ParameterError for a schema that is nested too deeply to read.
    """
    match kind:
        case "json":
            try:
                schema = _without_unknown_formats(json.loads(source))
                return f"%json {json.dumps({**schema, 'x-guidance': schema.get('x-guidance', _JSON_OPTIONS)})}"
            except RecursionError:
                raise ParameterError("structured_outputs", "the schema is nested too deeply; simplify it") from None
        case "choice":
            return " | ".join(json.dumps(choice, ensure_ascii=False) for choice in json.loads(source))
        case "regex":
            from llguidance import regex_to_lark

            return f"/{regex_to_lark(source, 'd')}/"
        case _:
            raise ValueError(f"no rule can stand for a {kind}")


def _without_unknown_formats(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_unknown_formats(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    known = {}
    for keyword, value in schema.items():
        if keyword in _KEYWORDS_OF_MAPS and isinstance(value, dict):
            known[keyword] = {name: _without_unknown_formats(item) for name, item in value.items()}
        elif keyword in _KEYWORDS_OF_DATA:
            known[keyword] = value
        elif keyword != "format" or not isinstance(value, str) or value in _FORMATS:
            known[keyword] = _without_unknown_formats(value)
    return known
