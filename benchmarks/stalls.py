"""Measures who has to wait for whom: streams for a long prompt, probes for large bodies and grammars; JSON lines.

    python -m benchmarks.stalls --model MODEL.gguf [--target-itl-ms 100] [--max-num-batched-tokens 256] [--seconds 10]

First four streams alone, then four streams into which a prompt of twenty step budgets comes. Then /health, asked every
50 ms from a thread: of an idle server, of one that gets bodies of 5 MB, and of one that compiles grammars, the first
included.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.peers.run_llama_cpp import free_port
from benchmarks.serving import flags, running
from octavo.bench.benchmark import Settings, Target, find_target
from octavo.bench.http_client import HttpError, Server
from octavo.bench.outcome import Outcome
from octavo.bench.prompts import random_text
from octavo.bench.report import Latency
from octavo.bench.workload import LoadRequest

NUM_STREAMS = 4
NUM_BUDGETS = 20  # that the long prompt takes
BODY_BYTES = 5_000_000
NUM_SENDERS = 4
PROBE_S = 0.05


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description="Measure who has to wait for whom.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--target-itl-ms", type=float, default=100.0)
    parser.add_argument("--max-num-batched-tokens", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load on the probes")
    arguments = parser.parse_args()
    about = {"model": arguments.model.name, "commit": record.commit()} | record.machine()
    port = free_port()
    options = {
        "--port": port,
        "--max-model-len": (NUM_BUDGETS + 4) * arguments.max_num_batched_tokens,
        "--max-num-batched-tokens": arguments.max_num_batched_tokens,
        "--target-itl-ms": arguments.target_itl_ms,
    }
    command = [str(Path(sys.executable).with_name("octavo")), "serve", str(arguments.model), *flags(options)]
    with running(command, port):
        server = Server.parse(f"http://127.0.0.1:{port}")
        print(json.dumps(about | asyncio.run(stream_stalls(server, arguments))), flush=True)
        for name, load in {"idle": rest, "large bodies": send_bodies, "grammars": send_grammars}.items():
            latency = asyncio.run(probe_under(server, load, arguments.seconds))
            print(json.dumps(about | {"case": "health", "load": name} | latency), flush=True)


async def stream_stalls(server: Server, arguments: argparse.Namespace) -> dict[str, Any]:
    """Gaps between the pieces of four streams, alone and while a long prompt is computed."""
    target = await find_target(server, Settings())
    num_tokens = NUM_BUDGETS * arguments.max_num_batched_tokens
    quiet = await run_streams(target, [])
    solo = await target.client.run(long_request(target, num_tokens, seed=1), time.perf_counter())
    busy = await run_streams(target, [long_request(target, num_tokens, seed=2)])
    quiet_gaps, busy_gaps = (
        Latency.of([gap for outcome in part[:NUM_STREAMS] for gap in outcome.itl_s]) for part in (quiet, busy)
    )
    assert quiet_gaps is not None and busy_gaps is not None
    limit_ms = 2 * quiet_gaps.p99_ms + arguments.target_itl_ms
    return {
        "case": "streams",
        "num_prompt_tokens": busy[-1].num_prompt_tokens,
        "quiet_ms": {"p50": round(quiet_gaps.p50_ms, 1), "p99": round(quiet_gaps.p99_ms, 1)},
        "busy_ms": {"p50": round(busy_gaps.p50_ms, 1), "p99": round(busy_gaps.p99_ms, 1)},
        "largest_gap_ms": round(busy_gaps.max_ms, 1),
        "limit_ms": round(limit_ms, 1),
        "long_ttft_s": {"solo": round(solo.ttft_s, 2), "beside_streams": round(busy[-1].ttft_s, 2)},
    }


async def run_streams(target: Target, later: Sequence[LoadRequest]) -> list[Outcome]:
    """Four streams, and what comes when they have begun. Those end with the last of the others at the earliest."""
    start_s = time.perf_counter()
    num_tokens = 600 if later else 150
    requests = [
        LoadRequest(0.0, random_text(20, random.Random(f"{seed} {len(later)}")), num_tokens)
        for seed in range(NUM_STREAMS)
    ]
    streams = [asyncio.create_task(target.client.run(request, start_s)) for request in requests]
    if later:
        await asyncio.sleep(2.0)
    return await asyncio.gather(*streams, *(target.client.run(request, start_s) for request in later))


def long_request(target: Target, num_tokens: int, seed: int) -> LoadRequest:
    """One token of answer to so many of prompt."""
    return LoadRequest(0.0, random_text(target.line.num_words(num_tokens), random.Random(seed)), 1)


async def probe_under(server: Server, load: Callable[[Server, int], Any], seconds: float) -> dict[str, Any]:
    """How long /health takes while `load(server, sender)` goes on."""
    with probing(server) as latencies:
        end_s = time.perf_counter() + seconds

        async def keep(sender: int) -> int:
            for number in count():
                if time.perf_counter() > end_s:
                    return number
                await load(server, sender + NUM_SENDERS * number)
            raise AssertionError("count() does not end")

        num_sent = sum(await asyncio.gather(*map(keep, range(NUM_SENDERS))))
    latency = Latency.of(latencies)
    assert latency is not None
    figures = {"p50": latency.p50_ms, "p99": latency.p99_ms, "max": latency.max_ms}
    return {
        "num_sent": num_sent,
        "num_probes": len(latencies),
        "ms": {name: round(ms, 1) for name, ms in figures.items()},
    }


@contextmanager
def probing(server: Server) -> Iterator[list[float]]:
    """The seconds that each probe takes, from a thread that does nothing else."""
    latencies: list[float] = []
    is_over = threading.Event()

    def probe() -> None:
        connection = http.client.HTTPConnection(server.host, server.port)
        while not is_over.wait(PROBE_S):
            start_s = time.perf_counter()
            connection.request("GET", "/health")
            connection.getresponse().read()
            latencies.append(time.perf_counter() - start_s)
        connection.close()

    thread = threading.Thread(target=probe)
    thread.start()
    yield latencies
    is_over.set()
    thread.join()


async def rest(_: Server, number: int) -> None:
    """No load."""
    await asyncio.sleep(0.1)


async def send_bodies(server: Server, number: int) -> None:
    """A prompt that no context can take."""
    await post(server, b'{"prompt": "%s"}' % (b"word " * (BODY_BYTES // 5)))


async def send_grammars(server: Server, number: int) -> None:
    """A schema that has not been there before."""
    properties = {f"p{number}_{index}": {"type": "array", "items": {"enum": ["a", "b"]}} for index in range(40)}
    schema = {"type": "object", "properties": properties}
    await post(server, json.dumps({"prompt": "Once", "max_tokens": 4, "structured_outputs": {"json": schema}}).encode())


async def post(server: Server, body: bytes) -> None:
    """Ask for a completion; whether there is one makes no difference."""
    try:
        async for _ in server.request("POST", "/v1/completions", body):
            pass
    except HttpError:
        pass


if __name__ == "__main__":
    main()
