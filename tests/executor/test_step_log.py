"""The log of steps: what each ran, and its time."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from octavo import LLM, SamplingParams
from octavo.core.step_work import StepWork


def test_a_line_for_each_step_of_a_model(tiny_model: Path, tmp_path: Path):
    path = tmp_path / "steps.jsonl"
    params = SamplingParams(max_tokens=3, temperature=0, ignore_eos=True)
    with LLM(str(tiny_model), step_log=str(path), max_num_batched_tokens=6, enable_prefix_caching=False) as llm:
        llm.generate([[5, 6, 7, 8], [9, 10, 11, 12]], params, use_tqdm=False)
        llm.generate([[5, 6, 7, 8]], params, use_tqdm=False)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(line.pop("seconds") > 0 for line in lines)
    first = [(6, 1, 10 + 3), (3, 2, 5 + 7), (2, 2, 6 + 5), (1, 1, 6)]
    alone = [(4, 1, 10), (1, 1, 5), (1, 1, 6)]
    assert [StepWork(**line) for line in lines] == first + alone


def test_the_time_between_steps_counts_while_requests_go_on(tiny_model: Path, tmp_path: Path, monkeypatch):
    path = tmp_path / "steps.jsonl"
    ticks = iter(range(100))
    monkeypatch.setattr("octavo.executor.step_log.time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    params = SamplingParams(max_tokens=3, temperature=0, ignore_eos=True)
    with LLM(str(tiny_model), step_log=str(path)) as llm:
        for _ in range(2):
            llm.generate([[5, 6, 7, 8]], params, use_tqdm=False)
    seconds = [json.loads(line)["seconds"] for line in path.read_text().splitlines()]
    assert seconds == [1.0] * 6  # one look at the clock in a step that goes on, two in one that does not
    assert next(ticks) == 8


def test_a_file_that_cannot_be_written_ends_the_start(tiny_model: Path, tmp_path: Path):
    with pytest.raises(OSError, match="nowhere"):
        LLM(str(tiny_model), step_log=str(tmp_path / "nowhere" / "steps.jsonl"))
