"""How an engine is measured: one procedure and one command line for octavo and for every peer.

An engine that is measured is a function that generates, and a process. `run` asks it for a first token, which says when
it was ready, and then for a case of the workload a few times; the fastest run counts, since other work on the machine
can only make it slower. One JSON line goes to stdout.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.workload import CASE_BY_NAME, BenchmarkRequest, Case

FIRST_REQUEST = BenchmarkRequest(prompt_token_ids=[1000, 2000, 3000, 4000], num_output_tokens=1)
# Token ids of their own for the runs that only measure the first token.
FIRST_TOKEN_RUN = 1_000


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line asks of an engine."""

    model: Path
    case: Case
    num_threads: int


@dataclass(frozen=True, slots=True)
class MeasuredEngine:
    """An engine that is up. `generate` runs requests together and returns how many tokens each of them got."""

    name: str
    version: str
    generate: Callable[[Sequence[BenchmarkRequest]], list[int]]
    pid: int = os.getpid()


def run(open_engine: Callable[[Settings], AbstractContextManager[MeasuredEngine]]) -> None:
    """Measure the engine that `open_engine` opens as the command line asks, and print one JSON line."""
    parser = argparse.ArgumentParser(description="Measure an engine on one case of the workload.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--case", choices=CASE_BY_NAME, default="single")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--runs", type=int, default=3, help="the fastest of so many counts")
    arguments = parser.parse_args()
    settings = Settings(arguments.model, CASE_BY_NAME[arguments.case], arguments.threads)
    machine = record.machine()
    with open_engine(settings) as engine:
        measured = measure(engine, settings.case, arguments.runs)
    about = {
        "engine": engine.name,
        "version": engine.version,
        "case": settings.case.name,
        "model": settings.model.name,
        "num_threads": settings.num_threads,
    }
    print(json.dumps(about | measured | {"commit": record.commit()} | machine))


def measure(engine: MeasuredEngine, case: Case, num_runs: int) -> dict[str, Any]:
    """The figures of `num_runs` runs of `case`, under the names of the JSON line. Rates are those of the whole time."""
    timed_run(engine, [FIRST_REQUEST])
    ready_s = record.process_age_s(engine.pid)
    runs_s = [timed_run(engine, case.requests(run)) for run in range(num_runs)]
    seconds = min(runs_s)
    figures: dict[str, float | list[float]] = {
        "ready_s": ready_s,
        "seconds": seconds,
        "runs_s": runs_s,
        "prompt_tokens_per_s": case.num_prompt_tokens / seconds,
        "output_tokens_per_s": case.num_output_tokens / seconds,
        "total_tokens_per_s": (case.num_prompt_tokens + case.num_output_tokens) / seconds,
    }
    if case.name == "single":
        figures |= decode_figures(engine, case, seconds, num_runs)
    figures |= {"rss_bytes": record.rss_bytes(engine.pid), "peak_rss_bytes": record.peak_rss_bytes(engine.pid)}
    return {name: _rounded(value) for name, value in figures.items()}


def decode_figures(engine: MeasuredEngine, case: Case, seconds: float, num_runs: int) -> dict[str, float]:
    """Of one request that takes `seconds`: the time to its first token, and the rate of the others."""
    first_token_s = min(
        timed_run(engine, [BenchmarkRequest(request.prompt_token_ids, 1) for request in case.requests(run)])
        for run in range(FIRST_TOKEN_RUN, FIRST_TOKEN_RUN + num_runs)
    )
    return {
        "first_token_s": first_token_s,
        "decode_tokens_per_s": (case.num_output_tokens - 1) / (seconds - first_token_s),
    }


def timed_run(engine: MeasuredEngine, requests: Sequence[BenchmarkRequest]) -> float:
    """Seconds that the requests take together. Raises RuntimeError where one got more or fewer tokens than it asked."""
    start_s = time.perf_counter()
    output_lens = engine.generate(requests)
    seconds = time.perf_counter() - start_s
    expected = [request.num_output_tokens for request in requests]
    if output_lens != expected:
        raise RuntimeError(f"{engine.name} generated {output_lens} tokens, asked for {expected}: not the same work")
    return seconds


def _rounded(value: float | list[float]) -> float | list[float]:
    if isinstance(value, list):
        return [round(item, 4) for item in value]
    return round(value, 4)
