"""Holds the simulator against the server that it stands for: one JSON line a workload, predicted and measured.

    python -m benchmarks.simulation --model MODEL.gguf [--requests 200] [--cost cost.json]

A server runs with --step-log. A load of its own, at growing concurrency, gives the steps that the cost model is fitted
to; those of its requests that came one at a time say what a request takes outside of steps. It comes before, between
and after two workloads that the fit does not see: a closed loop of requests of many lengths, and an open one whose
arrivals are Poisson at 60% of what the closed one carried. The simulator gets the same requests and the fitted costs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import record
from benchmarks.peers.run_llama_cpp import free_port
from benchmarks.serving import octavo_command, running
from octavo.bench.benchmark import Settings, find_target, measure
from octavo.bench.http_client import Server
from octavo.bench.lengths import Lengths
from octavo.bench.report import Latency, Report, summarize
from octavo.bench.workload import RandomWorkload
from octavo.config import BLOCK_SIZE
from octavo.planning.prediction import MeasuredLoad, fit_request_s, predict
from octavo.planning.step_costs import FitQuality, MeasuredStep, read_steps, write_cost_model
from octavo.sim.cost_model import CostModel
from octavo.sim.engine_settings import EngineSettings

CALIBRATION = RandomWorkload(0, Lengths.parse("uniform:16,600"), Lengths.parse("uniform:8,64"), seed=1)
CALIBRATION_LOADS = {1: 6, 4: 8, 32: 32}  # requests by concurrency
CLOSED = RandomWorkload(0, Lengths.parse("lognormal:160,0.7"), Lengths.parse("lognormal:64,0.6"), seed=2)
OPEN = RandomWorkload(0, Lengths.parse("uniform:32,480"), Lengths.parse("lognormal:40,0.7"), seed=3)
CONCURRENCY = 32
FIGURES: dict[str, Callable[[Report], float]] = {
    "output_tokens_per_s": lambda report: report.output_tokens_per_s,
    "ttft_p50_ms": lambda report: latency_ms(report.ttft, "p50_ms"),
    "ttft_p95_ms": lambda report: latency_ms(report.ttft, "p95_ms"),
    "itl_p50_ms": lambda report: latency_ms(report.itl, "p50_ms"),
    "itl_p95_ms": lambda report: latency_ms(report.itl, "p95_ms"),
    "e2el_p95_ms": lambda report: latency_ms(report.e2el, "p95_ms"),
}
LOAD_SHARE = 0.6  # of the closed loop's requests a second, in the open one


def main() -> None:
    """Measure, fit, predict; print one JSON line a workload."""
    parser = argparse.ArgumentParser(description="Hold the simulator against a server.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--requests", type=int, default=200, help="of each workload")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--cost", type=Path, help="where to keep the fitted cost model")
    arguments = parser.parse_args()
    arguments.concurrency = CONCURRENCY
    about = record.machine() | {"commit": record.commit(), "model": arguments.model.name}
    with tempfile.TemporaryDirectory() as folder:
        log, port = Path(folder) / "steps.jsonl", free_port()
        with running([*octavo_command(arguments, port), "--step-log", str(log)], port):
            comparison = asyncio.run(measure_all(port, log, arguments.requests))
    if arguments.cost is not None:
        write_cost_model(arguments.cost, comparison.cost_model)
    print(json.dumps(comparison.fit() | about), flush=True)
    for name in comparison.measured_by_name:
        print(json.dumps({"workload": name} | comparison.errors(name) | about), flush=True)


class Measured(NamedTuple):
    """What a server did with a workload, and the workload."""

    workload: RandomWorkload
    max_concurrency: int | None
    report: Report


async def measure_all(port: int, log: Path, num_requests: int) -> Comparison:
    """Put the loads on the server. The steps of a calibration before, between and after the workloads are kept."""
    server = Server.parse(f"http://127.0.0.1:{port}")
    target = await find_target(server, Settings())
    steps: list[MeasuredStep] = []
    light_loads: list[MeasuredLoad] = []

    async def run(workload: RandomWorkload, max_concurrency: int | None) -> Measured:
        settings = Settings(max_concurrency=max_concurrency)
        return Measured(workload, max_concurrency, summarize(await measure(target, workload, settings)))

    async def calibrate(seed: int) -> None:
        num_before = len(read_steps(log))
        for concurrency, count in CALIBRATION_LOADS.items():
            load = await run(replace(CALIBRATION, num_requests=count, seed=seed + concurrency), concurrency)
            if concurrency == 1:
                light_loads.append(MeasuredLoad(load.workload, 1, latency_ms(load.report.ttft, "mean_ms")))
        steps.extend(read_steps(log)[num_before:])

    await calibrate(seed=100)
    closed = await run(replace(CLOSED, num_requests=num_requests), CONCURRENCY)
    await calibrate(seed=200)
    rate = LOAD_SHARE * closed.report.requests_per_s
    opened = await run(replace(OPEN, num_requests=num_requests, request_rate=rate), None)
    await calibrate(seed=300)
    return Comparison(steps, light_loads, await engine_settings(server), {"closed": closed, "open": opened})


class Comparison:
    """The reports of a server beside the simulator's, with the costs that the server's steps and light loads tell."""

    def __init__(
        self,
        steps: Sequence[MeasuredStep],
        light_loads: Sequence[MeasuredLoad],
        settings: EngineSettings,
        measured_by_name: dict[str, Measured],
    ) -> None:
        step_costs = CostModel.fit(steps)
        self.cost_model = replace(step_costs, request_s=fit_request_s(step_costs, settings, light_loads))
        self.measured_by_name = measured_by_name
        self._steps = steps
        self._settings = settings

    def fit(self) -> dict[str, Any]:
        """The costs, and how well they tell the steps that they were fitted to."""
        quality = FitQuality.of(self.cost_model, self._steps)
        return {name: round(value, 4) for name, value in quality._asdict().items()} | asdict(self.cost_model)

    def errors(self, name: str) -> dict[str, Any]:
        """Predicted, measured, and the relative error, of each figure that counts."""
        workload, max_concurrency, measured = self.measured_by_name[name]
        predicted = predict(workload, self._settings, self.cost_model, max_concurrency=max_concurrency).report
        figures: dict[str, Any] = {"num_requests": measured.num_requests, "request_rate": str(workload.request_rate)}
        for key, read in FIGURES.items():
            guess, truth = read(predicted), read(measured)
            figures[key] = {
                "predicted": round(guess, 2),
                "measured": round(truth, 2),
                "error": round(guess / truth - 1, 4),
            }
        return figures


def latency_ms(latency: Latency | None, percentile: str) -> float:
    """One figure of a latency that every request has."""
    assert latency is not None
    value: float = getattr(latency, percentile)
    return value


async def engine_settings(server: Server) -> EngineSettings:
    """The simulator's engine, as large as the server's."""
    model = (await server.get_json("/v1/models"))["data"][0]
    max_model_len = int(model["max_model_len"])
    return EngineSettings(
        num_blocks=CONCURRENCY * -(-max_model_len // BLOCK_SIZE),
        max_num_seqs=CONCURRENCY,
        max_num_batched_tokens=512,
        max_model_len=max_model_len,
    )


if __name__ == "__main__":
    main()
