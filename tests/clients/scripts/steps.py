"""Steps: what a client's script does one after the other, and how it tells the runner, one JSON line each."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable

URL = os.environ.get("OCTAVO_URL", "http://127.0.0.1:8000")
MODEL = os.environ.get("OCTAVO_MODEL", "octavo")
API_KEY = os.environ.get("OCTAVO_API_KEY", "none")

QUESTION = "What is the capital of France?"
TOO_LONG = "octavo " * 40_000  # far beyond any model's context that is served here

WEATHER_PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
PERSON_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}

Step = Callable[[], None]
_steps: list[Step] = []


def step(function: Step) -> Step:
    """Make the function a step of the script, under its own name. It raises if the client gets what it should not."""
    _steps.append(function)
    return function


def run_steps() -> None:
    """Take every step, also those after one that failed."""
    print(json.dumps({"steps": [function.__name__ for function in _steps]}), flush=True)
    for function in _steps:
        error = None
        try:
            function()
        except Exception as raised:
            traceback.print_exc()
            error = f"{type(raised).__name__}: {raised}"
        print(json.dumps({"step": function.__name__, "error": error}), flush=True)
