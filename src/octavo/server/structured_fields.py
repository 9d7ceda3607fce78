"""What the output must be: the fields that say so on the wire, OpenAI's, vLLM's and vLLM's former ones."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from octavo.core.sampling_params import ParameterError, StructuredOutputsParams
from octavo.server.errors import invalid

_KINDS = ("json", "regex", "choice", "grammar")


class JsonSchema(msgspec.Struct, frozen=True):
    """A schema and its name. It is kept to whether `strict` is set or not."""

    schema: dict[str, Any] | None = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, frozen=True):
    """OpenAI's way to say it."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None
    schema: dict[str, Any] | None = None  # llama.cpp's way to say which json_object; in responses also a json_schema


class StructuredOutputs(msgspec.Struct, frozen=True):
    """vLLM's way to say it: one of these. What could not be kept to is refused."""

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: None = None
    whitespace_pattern: None = None


class StructuredFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a request that say what its output must be; one of them may."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: str | dict[str, Any] | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None


def structured_outputs(body: StructuredFields) -> StructuredOutputsParams | None:
    """What the request prescribes, if anything. Raises the error, with the field, for what says nothing or too much."""
    asked: dict[str, dict[str, Any]] = {}
    if body.response_format is not None and body.response_format.type != "text":
        asked["response_format"] = _of_response_format(body.response_format)
    if body.structured_outputs is not None:
        fields = {name: getattr(body.structured_outputs, name) for name in (*_KINDS, "json_object")}
        asked["structured_outputs"] = {name: value for name, value in fields.items() if value is not None}
    for kind in _KINDS:
        if (value := getattr(body, f"guided_{kind}")) is not None:
            asked[f"guided_{kind}"] = {kind: value}
    if len(asked) > 1:
        raise invalid(list(asked)[1], f"{' and '.join(asked)} all say what the output must be; send one of them")
    for field, constraint in asked.items():
        try:
            return StructuredOutputsParams(**constraint)
        except ParameterError as error:
            raise invalid(field, str(error)) from error
    return None


def _of_response_format(wanted: ResponseFormat) -> dict[str, Any]:
    schema = wanted.schema if wanted.json_schema is None else wanted.json_schema.schema
    if schema is not None:
        return {"json": schema}
    if wanted.type == "json_schema":
        raise invalid("response_format", "response_format has no schema; send json_schema: {name, schema}")
    return {"json_object": True}
