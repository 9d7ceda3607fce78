"""Measures what a step of the loop costs beside the model: EngineCore.step over an executor that computes nothing.

    python -m benchmarks.scheduler [--steps N]

256 requests run; 0, 10 and 100,000 wait. In the "decode" case nobody enters or leaves; in the "turnover" case four
requests end in each step and four others take their rows. Prints one JSON line a case. The aim: a median below 2 ms,
and at 100,000 waiting at most 1.3 times that at 10.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import asdict

from benchmarks import record
from octavo.core.engine_core import EngineCore
from octavo.core.messages import EngineRequest
from octavo.core.sampling_params import SamplingParams
from octavo.sim.engine_settings import EngineSettings
from octavo.sim.simulator import PlainModel

NUM_PROMPT_TOKENS = 200
SETTINGS = EngineSettings(num_blocks=256 * 64, max_num_seqs=256, max_num_batched_tokens=2048, max_model_len=1024)
NUM_WAITING = (0, 10, 100_000)
NUM_LEAVING = {"decode": 0, "turnover": 4}  # requests a step


class Load:
    """An engine whose rows are all taken, and a queue that is kept at its length."""

    def __init__(self, num_waiting: int, num_leaving: int) -> None:
        self.engine = EngineCore(SETTINGS.build_scheduler(), PlainModel(), time.perf_counter)
        self._num_waiting = num_waiting
        self._num_tokens = SETTINGS.max_num_seqs // num_leaving if num_leaving else 800
        self._num_requests = 0
        self.fill()
        while self.engine.scheduler.waiting and len(self.engine.scheduler.running) < SETTINGS.max_num_seqs:
            self.engine.step()
        self.fill()

    def fill(self) -> None:
        """Add requests until all rows can be taken and as many wait as shall."""
        scheduler = self.engine.scheduler
        num_free_rows = SETTINGS.max_num_seqs - len(scheduler.running)
        for _ in range(num_free_rows + self._num_waiting - len(scheduler.waiting)):
            self._num_requests += 1
            first = self._num_requests * 1000  # no two prompts begin alike
            prompt = tuple(range(first, first + NUM_PROMPT_TOKENS))
            params = SamplingParams(max_tokens=self._num_tokens)
            self.engine.add_request(EngineRequest(f"{self._num_requests}", prompt, params, seed=0))


def measure(case: str, num_waiting: int, num_steps: int) -> dict[str, object]:
    """The figures of one case."""
    load = Load(num_waiting, NUM_LEAVING[case])
    times_ms = []
    for _ in range(num_steps):
        load.fill()
        started_s = time.perf_counter()
        load.engine.step()
        times_ms.append(1000 * (time.perf_counter() - started_s))
    return {
        "benchmark": "scheduler",
        "case": case,
        "num_running": len(load.engine.scheduler.running),
        "num_waiting": len(load.engine.scheduler.waiting),
        "num_steps": num_steps,
        "median_ms": round(statistics.median(times_ms), 4),
        "p95_ms": round(statistics.quantiles(times_ms, n=20)[-1], 4),
    }


def main() -> None:
    """Measure all cases and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300, help="steps measured in each case")
    arguments = parser.parse_args()
    circumstances = {"machine": record.machine(), "commit": record.commit(), "settings": asdict(SETTINGS)}
    for case in NUM_LEAVING:
        figures = {waiting: measure(case, waiting, arguments.steps) for waiting in NUM_WAITING}
        for figure in figures.values():
            print(json.dumps(figure | {"to_10_waiting": _ratio(figure, figures[10])} | circumstances), flush=True)


def _ratio(figure: dict[str, object], other: dict[str, object]) -> float:
    """How the medians compare."""
    return round(float(str(figure["median_ms"])) / float(str(other["median_ms"])), 3)


if __name__ == "__main__":
    main()
