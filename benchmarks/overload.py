"""Measures what a server does when more is asked than it can do: goodput, refusals, memory; one JSON line a phase.

    python -m benchmarks.overload --model MODEL.gguf [--seconds 300] [--loads 1 2 10] [--max-num-seqs 64]

First a closed loop, always as many requests under way as may run, tells the capacity. Then requests come in an open
loop, as a Poisson process, at multiples of it; whoever is refused does not come back. Goodput is counted in tokens of
requests that were answered to their end, in the time after the queue has filled and while requests still come.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import record
from benchmarks.peers.run_llama_cpp import free_port
from benchmarks.serving import family, flags, running
from octavo.bench.benchmark import Settings, Target, find_target, measure
from octavo.bench.http_client import Server
from octavo.bench.lengths import Lengths
from octavo.bench.outcome import Outcome
from octavo.bench.report import Latency
from octavo.bench.workload import RandomWorkload

WORKLOAD = RandomWorkload(0, Lengths.parse("lognormal:120,0.6"), Lengths.parse("lognormal:40,0.5"))
MAX_MODEL_LEN = 1024
RAMP_SHARE = 0.25  # of a phase: until then the queue is still filling
MEMORY_S = 1.0  # between two looks at the memory


class Phase(NamedTuple):
    """What came of one load."""

    outcomes: list[Outcome]
    seconds: float  # while requests came
    rss_bytes: list[int]  # one look after the other

    @property
    def goodput(self) -> float:
        """Tokens a second of requests that were answered, in the time that counts."""
        start_s = self.seconds * RAMP_SHARE
        num_tokens = 0.0
        for outcome in self.outcomes:
            if not outcome.error:
                tokens_per_chunk = outcome.num_output_tokens / len(outcome.chunk_s)
                num_tokens += tokens_per_chunk * sum(start_s <= time_s < self.seconds for time_s in outcome.chunk_s)
        return num_tokens / (self.seconds - start_s)

    def figures(self) -> dict[str, Any]:
        """Under the names of the JSON line."""
        refused = [outcome for outcome in self.outcomes if outcome.is_refused]
        answered = [outcome for outcome in self.outcomes if not outcome.error]
        lost = [outcome.error for outcome in self.outcomes if outcome.error and not outcome.is_refused]
        refusal = Latency.of([outcome.ended_s - outcome.sent_s for outcome in refused])
        ttft = Latency.of([outcome.ttft_s for outcome in answered])
        return {
            "seconds": self.seconds,
            "num_sent": len(self.outcomes),
            "num_answered": len(answered),
            "num_refused": len(refused),
            "num_lost": len(lost),
            "lost": lost[:3],
            "goodput_tokens_per_s": round(self.goodput, 1),
            "refusal_ms": refusal and {"p50": round(refusal.p50_ms, 1), "p99": round(refusal.p99_ms, 1)},
            "ttft_s": ttft and {"p50": round(ttft.p50_ms / 1000, 2), "p99": round(ttft.p99_ms / 1000, 2)},
            "rss_bytes": {"ramp": self.rss_bytes[int(len(self.rss_bytes) * RAMP_SHARE)], "end": self.rss_bytes[-1]},
        }


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description="Measure a server that is asked for more than it can do.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=300.0, help="of each phase")
    parser.add_argument("--loads", type=float, nargs="+", default=[1.0, 2.0, 10.0], help="times the capacity")
    parser.add_argument("--max-num-seqs", type=int, default=64)
    arguments = parser.parse_args()
    about = {"model": arguments.model.name, "max_num_seqs": arguments.max_num_seqs, "commit": record.commit()}
    about |= record.machine()
    port = free_port()
    with running(command(arguments, port), port) as pid:
        asyncio.run(measure_all(Server.parse(f"http://127.0.0.1:{port}"), pid, arguments, about))


def command(arguments: argparse.Namespace, port: int) -> list[str]:
    """The server, as a user would start it."""
    options = {"--port": port, "--max-num-seqs": arguments.max_num_seqs, "--max-model-len": MAX_MODEL_LEN}
    return [str(Path(sys.executable).with_name("octavo")), "serve", str(arguments.model), *flags(options)]


async def measure_all(server: Server, pid: int, arguments: argparse.Namespace, about: dict[str, Any]) -> None:
    """Find the capacity, put each load on the server, and print a line for each."""
    settings = Settings(max_concurrency=arguments.max_num_seqs)
    target = await find_target(server, settings)
    probe = replace(WORKLOAD, num_requests=3 * arguments.max_num_seqs, seed=1)
    outcomes = await measure(target, probe, settings)
    capacity = len(outcomes) / max(outcome.ended_s for outcome in outcomes)
    reference: float | None = None
    for load in arguments.loads:
        rate = load * capacity
        workload = replace(WORKLOAD, num_requests=int(rate * arguments.seconds), request_rate=rate, seed=int(load * 10))
        phase = await run_phase(target, workload, pid, arguments.seconds)
        reference = reference or phase.goodput
        share = {"load": load, "requests_per_s": round(rate, 2), "goodput_share": round(phase.goodput / reference, 3)}
        print(json.dumps(about | share | phase.figures()), flush=True)


async def run_phase(target: Target, workload: RandomWorkload, pid: int, seconds: float) -> Phase:
    """Put one load on the server, an eye on its memory."""
    rss_bytes: list[int] = []

    async def watch() -> None:
        while True:
            rss_bytes.append(resident_bytes(family(pid)))
            await asyncio.sleep(MEMORY_S)

    watcher = asyncio.create_task(watch())
    outcomes = await measure(target, workload, Settings(num_warmups=0))
    watcher.cancel()
    return Phase(outcomes, seconds, rss_bytes)


def resident_bytes(process_ids: Sequence[int]) -> int:
    """Memory of these processes together."""
    return sum(map(record.rss_bytes, process_ids))


if __name__ == "__main__":
    main()
