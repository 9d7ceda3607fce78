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

[features]  # what a small model would do with tools may have no end
shell_tool = false
multi_agent = false
goals = false
view_image = false

[tools.experimental_request_user_input]
enabled = false
"""
ANSWER_SCHEMA = {  # what a small model says without one may have no end
    "type": "object",
    "properties": {"answer": {"type": "string", "maxLength": 40}},
    "required": ["answer"],
    "additionalProperties": False,
}


def run_codex(home: str, *arguments: str) -> tuple[int, list[dict]]:
    """The exit status of `codex exec` and its events. `home` keeps its config and the sessions."""
    for name, text in (
        ("config.toml", CONFIG),
        ("instructions.md", "Be brief."),
        ("schema.json", json.dumps(ANSWER_SCHEMA)),
    ):
        Path(home, name).write_text(text)
    schema = ("--output-schema", f"{home}/schema.json")
    done = subprocess.run(
        [CODEX, "exec", "--json", "--skip-git-repo-check", *schema, *arguments],
        cwd=home,
        env=os.environ | {"HOME": home, "CODEX_HOME": home, "OCTAVO_API_KEY": API_KEY},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def answer_of(status: int, events: list[dict]) -> str:
    """The last message, which follows the schema."""
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    texts = [item["text"] for item in items if item["type"] == "agent_message"]
    assert status == 0 and texts, events
    return json.loads(texts[-1])["answer"]


@step
def structured() -> None:
    """A question and, in the resumed session, one that follows it. Codex always streams."""
    with tempfile.TemporaryDirectory() as home:
        assert isinstance(answer_of(*run_codex(home, steps.QUESTION)), str)
        assert isinstance(answer_of(*run_codex(home, "resume", "--last", steps.FOLLOW_UP)), str)


@step
def errors() -> None:
    """An unknown model."""
    with tempfile.TemporaryDirectory() as home:
        status, events = run_codex(home, "--model", "unknown", steps.QUESTION)
    assert status != 0 and "does not exist" in json.dumps(events), events


if __name__ == "__main__":
    steps.run_steps()
