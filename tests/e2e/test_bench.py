"""octavo bench against octavo serve."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.server_process import ServerProcess

OCTAVO = [sys.executable, "-c", "from octavo.cli import main; main()"]
LOAD = ["--num-prompts", "6", "--input-len", "uniform:20,60", "--output-len", "5"]


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tiny_model, "--max-num-seqs", "4") as server:
        yield server.wait_until_ready()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*OCTAVO, "bench", *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_a_load_is_measured_and_saved(server, endpoint, tmp_path):
    saved = tmp_path / "result.jsonl"
    options = ["--endpoint", endpoint, "--save-result", str(saved), "--goodput", "e2el:600000", "--api-key", "secret"]
    finished = run("serve", "--base-url", server.url, *LOAD, *options)
    assert finished.returncode == 0, finished.stderr
    assert "6 sent, 0 failed" in finished.stdout and "time to first token" in finished.stdout
    [line] = saved.read_text().splitlines()
    result = json.loads(line)
    assert result["report"]["num_output_tokens"] == 30 and result["report"]["num_failed"] == 0
    assert result["report"]["goodput_requests_per_s"] == pytest.approx(result["report"]["requests_per_s"])
    assert result["server"]["model"]["id"] and result["server"]["version"]
    assert "secret" not in line


def test_a_sweep_writes_its_page(server, tmp_path):
    finished = run("sweep", "--base-url", server.url, *LOAD, "--values", "1,4", "--output-dir", str(tmp_path))
    assert finished.returncode == 0, finished.stderr
    assert "The knee is at" in finished.stdout
    assert {"index.html", "throughput.svg", "ttft.svg", "itl.svg", "points.json"} == {
        path.name for path in tmp_path.iterdir()
    }
    assert [point["value"] for point in json.loads((tmp_path / "points.json").read_text())["points"]] == [1, 4]


def test_what_fails_is_counted_and_tells_in_the_exit_status(server):
    finished = run("serve", "--base-url", server.url, *LOAD, "--output-len", "1000000")
    assert finished.returncode == 1
    assert "6 sent, 6 failed" in finished.stdout and "status 400" in finished.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve", "--base-url", "http://127.0.0.1:1"], "octavo: "),
        (["serve", "--endpoint", "embeddings"], "must be one of completions, chat"),
        (["serve", "--request-rate", "0"], "request_rate is 0.0; it must be above 0"),
        (["sweep", "--values", "4,2"], "growing order"),
        (["sweep", "--vary", "luck"], "must be one of concurrency, rate"),
    ],
)
def test_what_cannot_be_measured_is_one_line(arguments, message):
    finished = run(*arguments)
    assert finished.returncode == 1
    assert message in finished.stderr and len(finished.stderr.strip().splitlines()) == 1
