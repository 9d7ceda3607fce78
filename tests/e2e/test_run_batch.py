"""octavo run-batch as its users run it: to its end, and killed on the way."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.server_process import until

NUM_REQUESTS = 30


@pytest.fixture
def command(tmp_path: Path, tiny_model: Path) -> list[str]:
    lines = [json.dumps(request(number)) for number in range(NUM_REQUESTS)]
    (tmp_path / "in.jsonl").write_text("\n".join([*lines, "{"]) + "\n")  # the last is no request
    run_batch = [sys.executable, "-c", "from octavo.cli import main; main()", "run-batch", "--model", str(tiny_model)]
    files = ["-i", str(tmp_path / "in.jsonl"), "-o", str(tmp_path / "out.jsonl")]
    return [*run_batch, *files, "--max-num-seqs", "2", "--max-model-len", "512", "--served-model-name", "tiny"]


def request(number: int) -> dict[str, Any]:
    body = {"model": "tiny", "prompt": f"Count: {number}", "seed": number, "max_tokens": 80, "ignore_eos": True}
    return {"custom_id": f"request-{number}", "method": "POST", "url": "/v1/completions", "body": body}


def answers(path: Path) -> dict[str, str]:
    """The text of each answer by its custom_id; no line may be torn or twice there, and one is an error."""
    *lines, error = sorted(map(json.loads, path.read_text().splitlines()), key=lambda line: line["response"] is None)
    assert error["error"]["line"] == NUM_REQUESTS + 1
    texts = {line["custom_id"]: line["response"]["body"]["choices"][0]["text"] for line in lines}
    assert len(texts) == len(lines)
    return texts


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_batch_that_is_killed_goes_on_where_it_was(command, tmp_path):
    output = tmp_path / "out.jsonl"
    killed = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    until(lambda: output.exists() and output.read_bytes().count(b"\n") >= 5)
    killed.send_signal(signal.SIGKILL)
    killed.wait(60)
    before = output.read_bytes()
    num_before = before.count(b"\n")
    assert 5 <= num_before < NUM_REQUESTS
    finished = run(command)
    assert finished.returncode == 1, finished.stderr
    assert f"{NUM_REQUESTS - num_before} answered, 1 failed, {num_before} answered before" in finished.stderr
    resumed = answers(output)
    assert output.read_bytes().startswith(before[: before.rindex(b"\n") + 1])
    output.unlink()
    run(command)
    assert resumed == answers(output)
    assert resumed.keys() == {f"request-{number}" for number in range(NUM_REQUESTS)}


def test_refused_in_one_line(command, tmp_path):
    (tmp_path / "out.jsonl").write_text("not a batch\n")
    refused = [run(command)]
    (tmp_path / "in.jsonl").unlink()
    refused += [run(command)]
    for finished, reason in zip(refused, ("no answer of a batch", "there is no such file"), strict=True):
        assert finished.returncode == 1
        assert reason in finished.stderr
        assert finished.stderr.startswith("octavo: ") and finished.stderr.count("\n") == 1
