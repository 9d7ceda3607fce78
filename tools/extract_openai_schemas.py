"""Cuts out of OpenAI's OpenAPI document what the tests validate answers against.

    python -m tools.extract_openai_schemas openapi.json > tests/data/openai_schemas.json

Descriptions go, `nullable` becomes JSON schema, and unions lose the members that a server without pictures, sound and
built-in tools never sends.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOTS = (
    "CreateChatCompletionResponse",
    "CreateChatCompletionStreamResponse",
    "CreateCompletionResponse",
    "ErrorResponse",
    "ListModelsResponse",
    "Model",
    "Response",
    "ResponseStreamEvent",
)
# Members of unions that are left out, by what their names hold.
NEVER_SENT = (
    *("Audio", "Image", "Video", "Transcript", "Refusal", "Annotation", "Moderation"),
    *("MCP", "Mcp", "Shell", "Computer", "CodeInterpreter", "FileSearch", "WebSearch", "ApplyPatch", "ToolSearch"),
    *("CustomTool", "Namespace", "Compaction", "Hosted", "Program", "AdditionalTools", "AgentMessage", "MultiAgent"),
)
DROPPED_KEYS = ("description", "example", "examples", "title", "externalDocs", "default", "deprecated", "discriminator")


def main() -> int:
    """Write the schemas to the standard output."""
    parser = argparse.ArgumentParser(description="Cut the schemas of answers out of OpenAI's OpenAPI document.")
    parser.add_argument("document", type=Path)
    schemas = json.loads(parser.parse_args().document.read_text())["components"]["schemas"]
    kept: dict[str, Any] = {}
    missing = list(ROOTS)
    while missing:
        name = missing.pop()
        if name not in kept:
            kept[name] = plain(schemas[name])
            missing += references(kept[name])
    json.dump({"components": {"schemas": kept}}, sys.stdout, indent=0, sort_keys=True)
    print()
    return 0


def plain(schema: Any) -> Any:
    """The schema without what validates nothing."""
    if not isinstance(schema, dict):
        return [plain(item) for item in schema] if isinstance(schema, list) else schema
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            kept[key] = {name: plain(of_property) for name, of_property in value.items()}
        elif key in ("anyOf", "oneOf"):
            kept[key] = [plain(option) for option in value if not is_never_sent(option)]
        elif key not in DROPPED_KEYS and key != "nullable" and not key.startswith("x-"):
            kept[key] = plain(value)
    return {"anyOf": [kept, {"type": "null"}]} if schema.get("nullable") else kept


def is_never_sent(option: dict[str, Any]) -> bool:
    """Whether a member of a union is one of those left out."""
    return any(word in option.get("$ref", "") for word in NEVER_SENT)


def references(schema: Any) -> Iterator[str]:
    """The names of the schemas that this one refers to."""
    values = schema.items() if isinstance(schema, dict) else enumerate(schema) if isinstance(schema, list) else ()
    for key, value in values:
        if key == "$ref":
            yield value.rpartition("/")[2]
        else:
            yield from references(value)


if __name__ == "__main__":
    sys.exit(main())
