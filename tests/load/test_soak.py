"""Everything at once, for long: memory does not grow, answers stay the same, nothing is left of anybody.

    SOAK_S=3600 SOAK_RATE=0.7 SOAK_MODEL=model.gguf pytest -s tests/load/test_soak.py

A run of less than MIN_SLOPE_S says nothing of memory: caches are still being filled.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from octavo.structured.compiler import MAX_KEPT_GRAMMARS
from tests.e2e.server_process import ServerProcess, until
from tests.load.resident_memory import ResidentMemory
from tests.load.visitors import Visitors
from tools import fetch_model

SOAK_S = float(os.environ.get("SOAK_S", "4"))
RATE = float(os.environ.get("SOAK_RATE", "25"))  # visits a second
MODEL = os.environ.get("SOAK_MODEL")  # a path, or "demo"; by default the tiny one
OPTIONS = os.environ.get("SOAK_OPTIONS", "").split()
WARM_UP_SHARE = 1 / 3  # of the time
MIN_SLOPE_S = 1800
MAX_SLOPE = 1.0  # megabytes an hour
SAMPLE_S = 5.0
REPORT_S = 60.0
NUM_CLIENTS = 8
MAX_NUM_SEQS = 8


@pytest.fixture
def server(tiny_model: Path) -> Iterator[ServerProcess]:
    # A KV cache so small that all of it is soon in use: memory counts as resident only when it is written to.
    options = ["--max-model-len", "512", "--max-num-seqs", str(MAX_NUM_SEQS)]
    options += ["--kv-cache-memory-bytes", "48000000", *OPTIONS]
    model = fetch_model.model_path() if MODEL == "demo" else Path(MODEL or tiny_model)
    with ServerProcess(model, *options) as server:
        yield server.wait_until_ready()


def test_memory_and_answers_stay_as_they_are(server):
    visitors = Visitors(server)
    if SOAK_S >= MIN_SLOPE_S:
        visitors.fill(MAX_NUM_SEQS, MAX_KEPT_GRAMMARS)
    memory = ResidentMemory(server.process.pid)
    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        faults = keep_visiting(visitors, pool, memory)
    visitors.close()
    assert not faults, "\n".join([f"{len(faults)} faults", *faults[:5], *server.log[-20:]])
    until(server.is_idle)
    assert not [line for line in server.log if "Traceback" in line]
    if SOAK_S >= MIN_SLOPE_S:
        slope = memory.slope_per_h(SOAK_S * WARM_UP_SHARE)
        print(json.dumps({"soak_s": SOAK_S, "mb_per_h": round(slope, 3)}), flush=True)
        assert slope < MAX_SLOPE


def keep_visiting(visitors: Visitors, pool: ThreadPoolExecutor, memory: ResidentMemory) -> list[str]:
    """Let visitors in at their rate, for as long as it was asked for; what they found wrong."""
    started_s = sampled_s = reported_s = time.monotonic()
    visits: list[Future[str | None]] = []
    faults: list[str] = []
    num_visits = 0
    while (now_s := time.monotonic()) - started_s < SOAK_S:
        over = [visit for visit in visits if visit.done()]
        faults += [fault for visit in over if (fault := visit.result())]
        visits = [visit for visit in visits if visit not in over]
        if len(visits) < NUM_CLIENTS:
            visits.append(pool.submit(visitors.visit, num_visits))
            num_visits += 1
        if now_s - sampled_s > SAMPLE_S:
            sampled_s, megabytes = now_s, memory.sample()
            if now_s - reported_s > REPORT_S:
                reported_s = now_s
                report = {"elapsed_s": round(now_s - started_s), "resident_mb": round(megabytes, 2)}
                print(json.dumps(report | {"num_visits": num_visits, "num_faults": len(faults)}), flush=True)
        time.sleep(1 / RATE)
    return faults + [fault for visit in visits if (fault := visit.result())]
