"""Steps: what a client's script does one after the other, and how it tells the runner, one JSON line each."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from typing import Any

URL = os.environ.get("OCTAVO_URL", "http://127.0.0.1:8000")
MODEL = os.environ.get("OCTAVO_MODEL", "octavo")
API_KEY = os.environ.get("OCTAVO_API_KEY", "none")

QUESTION = "What is the weather in Paris?"
FOLLOW_UP = "And in Rome?"
CITIES = ["Paris", "Rome"]
TOO_LONG = "octavo " * 40_000  # tokens, and more than fit into any model that is served here

TOOL_NAME = "get_weather"
TOOL_RESULT = "18 degrees and sunny"
TOOL_PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": CITIES}},
    "required": ["city"],
    "additionalProperties": False,
}

Step = Callable[[], None]
_steps: list[Step] = []


def step(function: Step) -> Step:
    """Make the function a step of the script, under its own name. It raises if the client gets what it should not."""
    _steps.append(function)
    return function


def check_call(name: str, arguments: str | dict[str, Any]) -> None:
    """That this is a call of the one tool there is; `arguments` are JSON, or what a client made of it."""
    parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
    assert name == TOOL_NAME, name
    assert list(parsed) == ["city"] and parsed["city"] in CITIES, arguments


def check_raises(kind: type[Exception] | tuple[type[Exception], ...], act: Callable[[], object]) -> Any:
    """That `act` ends in the client's own error of this kind; return the error."""
    try:
        result = act()
    except kind as error:
        return error
    raise AssertionError(f"not refused, but answered: {result!r}")


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
