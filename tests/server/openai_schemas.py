"""What OpenAI says of its answers: schemas cut out of its OpenAPI document by tools/extract_openai_schemas.py."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

DOCUMENT = Path(__file__).parents[1] / "data" / "openai_schemas.json"


def assert_valid(instance: Any, name: str) -> None:
    """Fail, with the place and the reason, unless `instance` is what the schema of this name describes."""
    error = best_match(_validator(name).iter_errors(instance))
    assert error is None, f"{name}: {error.json_path}: {error.message[:500]}"


@lru_cache
def _validator(name: str) -> Draft202012Validator:
    document = json.loads(DOCUMENT.read_text())
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": document["components"]})
