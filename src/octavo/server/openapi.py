"""GET /openapi.json and GET /docs: the API as it is, made of the endpoints and the structs that they read and write."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

import octavo
from octavo.core.sampling_params import (
    MAX_ALLOWED_TOKEN_IDS,
    MAX_BAD_WORDS,
    MAX_LOGIT_BIAS,
    MAX_STOP_STRINGS,
    MAX_STOP_TOKEN_IDS,
    RANGES,
    Range,
)
from octavo.server.endpoint import Endpoint

Schema = dict[str, Any]

DOCS = Path(__file__).with_name("docs.html")
NUMBERS = RANGES | {"max_completion_tokens": RANGES["max_tokens"]}
TOKEN_ID: Schema = {"minimum": 0, "maximum": 2**31 - 1}
TEXT: Schema = {"minLength": 1}
# What SamplingParams checks of lists: how many items, and of which kind.
LISTS: dict[str, Schema] = {
    "stop": {"maxItems": MAX_STOP_STRINGS, "items": TEXT},
    "stop_sequences": {"maxItems": MAX_STOP_STRINGS, "items": TEXT},
    "bad_words": {"maxItems": MAX_BAD_WORDS, "items": TEXT},
    "stop_token_ids": {"maxItems": MAX_STOP_TOKEN_IDS, "items": TOKEN_ID},
    "allowed_token_ids": {"minItems": 1, "maxItems": MAX_ALLOWED_TOKEN_IDS, "items": TOKEN_ID},
}
LOGIT_BIAS: Schema = {
    "maxProperties": MAX_LOGIT_BIAS,
    "propertyNames": {"pattern": "^(0|[1-9][0-9]{0,9})$"},
    "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
}


async def get_openapi(request: Request) -> Response:
    """The API as an OpenAPI document."""
    document: ApiDocument = request.app.state.api_document
    return Response(document.json, media_type="application/json")


async def get_docs(_: Request) -> Response:
    """The API on a page, which reads /openapi.json and nothing from elsewhere."""
    return HTMLResponse(DOCS.read_text())


class ApiDocument:
    """The OpenAPI document of these endpoints; it is written when first asked for."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = endpoints

    @cached_property
    def json(self) -> bytes:
        """The document."""
        return msgspec.json.encode(self._document())

    def _document(self) -> Schema:
        kinds = [kind for endpoint in self._endpoints for kind in endpoint.kinds]
        schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
        schema_by_kind = dict(zip(kinds, schemas, strict=True))
        paths: dict[str, Schema] = {}
        for endpoint in self._endpoints:
            if endpoint.body is not None:
                _describe_body(components[_name_of(schema_by_kind[endpoint.body])], endpoint)
            path = re.sub(r":path\}", "}", endpoint.path)
            paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, schema_by_kind)
        return {
            "openapi": "3.1.0",
            "info": {
                "title": "octavo",
                "version": octavo.__version__,
                "description": "Paths with /v1 are served without it, too. Fields that are not listed are ignored.",
            },
            "paths": paths,
            "components": {"schemas": components},
        }


def _operation(endpoint: Endpoint, schema_by_kind: dict[Any, Schema]) -> Schema:
    content: Schema = {}
    if endpoint.answer is not None:
        content["application/json"] = {"schema": schema_by_kind[endpoint.answer]}
    if endpoint.event is not None:
        content["text/event-stream"] = {"schema": schema_by_kind[endpoint.event]}  # of the data of each event
    error = {"schema": schema_by_kind[endpoint.error]}
    operation: Schema = {
        "operationId": endpoint.handle.__name__,
        "summary": (inspect.getdoc(endpoint.handle) or "").partition("\n")[0],
        "responses": {
            "200": {"description": "The answer.", **({"content": content} if content else {})},
            "default": {"description": "What is wrong.", "content": {"application/json": error}},
        },
    }
    if endpoint.body is not None:
        body = {"schema": schema_by_kind[endpoint.body]}
        operation["requestBody"] = {"required": True, "content": {"application/json": body}}
    if names := re.findall(r"\{(\w+)", endpoint.path):
        place = {"in": "path", "required": True, "schema": {"type": "string"}}
        operation["parameters"] = [{"name": name, **place} for name in names]
    return operation


def _describe_body(schema: Schema, endpoint: Endpoint) -> None:
    """Say of a body what its struct does not: limits, that null means absence, and fields that must ask for nothing."""
    properties: dict[str, Schema] = schema["properties"]
    for name, values in endpoint.neutral_values.items():
        if name not in properties:
            properties[name] = {"enum": [*values, None], "description": "Not supported."}
    for name, of_field in properties.items():
        _describe_parameter(name, of_field)
        takes_null = {"type": "null"} in of_field.get("anyOf", ()) or None in of_field.get("enum", ())
        if name not in schema["required"] and not takes_null:
            default = {"default": of_field.pop("default")} if "default" in of_field else {}
            properties[name] = {"anyOf": [of_field, {"type": "null"}], **default}


def _describe_parameter(name: str, schema: Schema) -> None:
    for option in schema.get("anyOf", [schema]):
        if option.get("type") in ("integer", "number") and name in NUMBERS:
            option |= _limits(NUMBERS[name])
        elif option.get("type") == "string" and name == "stop":
            option |= TEXT
        elif option.get("type") == "array" and name in LISTS:
            option |= LISTS[name] | {"items": option["items"] | LISTS[name]["items"]}
        elif option.get("type") == "object" and name == "logit_bias":
            option |= LOGIT_BIAS


def _limits(limits: Range) -> Schema:
    return {"exclusiveMinimum" if limits.above_low else "minimum": limits.low, "maximum": limits.high}


def _name_of(reference: Schema) -> str:
    name: str = reference["$ref"].rpartition("/")[2]
    return name
