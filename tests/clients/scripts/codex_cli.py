"""Codex CLI: a provider in its config.toml, whose `base_url` is octavo's address with /v1."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

import steps
from steps import API_KEY, MODEL, URL, step

CODEX = Path(__file__).parents[3] / ".clients/codex/node_modules/.bin/codex"
TIMEOUT_S = 100
CONFIG = f"""
model = "{MODEL}"
model_provider = "octavo"
model_instructions_file = "instructions.md"
web_search = "disabled"

[model_providers.octavo]
name = "octavo"
base_url = "{URL}/v1"
env_key = "OCTAVO_API_KEY"
wire_api = "responses"
"""
PERSON_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def run_codex(*arguments: str) -> tuple[int, list[dict]]:
    """The exit status of `codex exec`, in a home of its own, and its events."""
    with tempfile.TemporaryDirectory() as home:
        Path(home, "config.toml").write_text(CONFIG)
        Path(home, "instructions.md").write_text("Be brief.")
        Path(home, "schema.json").write_text(json.dumps(PERSON_SCHEMA))
        done = subprocess.run(
            [CODEX, "exec", "--json", "--skip-git-repo-check", "--cd", home, *arguments],
            env=os.environ | {"HOME": home, "CODEX_HOME": home, "OCTAVO_API_KEY": API_KEY},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
        )
    print(done.stdout)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def answer_of(events: list[dict]) -> str:
    """The text of the last message."""
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    return [item["text"] for item in items if item["type"] == "agent_message"][-1]


@step
def streamed() -> None:
    """A question; Codex always streams."""
    status, events = run_codex(steps.QUESTION)
    assert status == 0 and answer_of(events), events


@step
def structured() -> None:
    """An object that follows a schema."""
    status, events = run_codex("--output-schema", "schema.json", "Invent a person.")
    assert status == 0 and set(json.loads(answer_of(events))) == {"name", "age"}, events


@step
def errors() -> None:
    """An unknown model."""
    status, events = run_codex("--model", "unknown", steps.QUESTION)
    assert status != 0 and "model_not_found" in json.dumps(events), events


if __name__ == "__main__":
    steps.run_steps()
