"""Measures servers under 100 requests at once: throughput, latencies and memory, a JSON line each and a table.

    python -m benchmarks.serving --model MODEL.gguf [--engines octavo llama_cpp ...] [--concurrency N] [--rate N]

The server runs in processes of its own, with all its requests under way together, and `octavo bench` is the client:
every prompt and output is of another length. Prompts are random words, so that no cache answers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import record
from benchmarks.peers.run_llama_cpp import SERVER as LLAMA_SERVER
from benchmarks.peers.run_llama_cpp import free_port, wait_until_up
from octavo.bench.benchmark import Settings, find_target, measure
from octavo.bench.http_client import Server
from octavo.bench.lengths import Lengths
from octavo.bench.report import Report, summarize
from octavo.bench.workload import RandomWorkload

NUM_REQUESTS = 100
INPUT_LEN = Lengths.parse("lognormal:160,0.7")
OUTPUT_LEN = Lengths.parse("lognormal:64,0.6")
MAX_MODEL_LEN = 2048
FEW_SLOTS = 16  # with which llama.cpp was fastest
TABLE_HEAD = (
    "| | output tokens/s | TTFT p50, p95, ms | ITL p50, p95 | end to end p50, p95 | failed | peak memory, MiB |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)


def main() -> None:
    """Measure what the command line names; print one JSON line."""
    parser = argparse.ArgumentParser(description="Measure a server under load.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--engines", nargs="+", choices=COMMANDS, default=["octavo"], help="measured one after another")
    parser.add_argument("--concurrency", type=int, default=NUM_REQUESTS)
    parser.add_argument("--rate", type=float, default=math.inf, help="requests a second; by default all at once")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    machine = record.machine()
    about = {name: value for name, value in vars(arguments).items() if name not in ("model", "engines")}
    lines = []
    for engine in arguments.engines:
        port = free_port()
        with running(COMMANDS[engine](arguments, port), port) as pid:
            report = asyncio.run(load(port, arguments))
            peak_rss_bytes = sum(record.peak_rss_bytes(process) for process in family(pid))
        figures = report.to_json() | {"peak_rss_bytes": peak_rss_bytes, "commit": record.commit()}
        print(json.dumps({"engine": engine, "model": arguments.model.name} | about | figures | machine), flush=True)
        lines.append(table_line(engine, report, peak_rss_bytes))
    print("\n".join([*TABLE_HEAD, *lines]))


def table_line(engine: str, report: Report, peak_rss_bytes: int) -> str:
    """An engine's line of the table."""
    assert report.ttft and report.itl and report.e2el, report.render()
    latencies = [f"{latency.p50_ms:.0f}, {latency.p95_ms:.0f}" for latency in (report.ttft, report.itl, report.e2el)]
    cells = [engine, f"{report.output_tokens_per_s:.0f}", *latencies, str(report.num_failed)]
    return f"| {' | '.join(cells)} | {peak_rss_bytes / 2**20:.0f} |"


async def load(port: int, arguments: argparse.Namespace) -> Report:
    """Put the workload on the server."""
    settings = Settings(max_concurrency=arguments.concurrency)
    workload = RandomWorkload(NUM_REQUESTS, INPUT_LEN, OUTPUT_LEN, request_rate=arguments.rate)
    target = await find_target(Server.parse(f"http://127.0.0.1:{port}"), settings)
    return summarize(await measure(target, workload, settings))


def octavo_command(arguments: argparse.Namespace, port: int) -> list[str]:
    """A server of this project, as a user would start it."""
    options = {"--port": port, "--max-num-seqs": arguments.concurrency, "--max-model-len": MAX_MODEL_LEN}
    options["--num-threads"] = arguments.threads
    return [str(Path(sys.executable).with_name("octavo")), "serve", str(arguments.model), *flags(options)]


def llama_cpp_command(arguments: argparse.Namespace, port: int) -> list[str]:
    """llama.cpp's server with a slot for each request, all in one KV cache of the size that they need at most."""
    options = {
        "--model": arguments.model,
        "--port": port,
        "--threads": arguments.threads,
        "--threads-batch": arguments.threads,
        "--parallel": arguments.concurrency,
        "--ctx-size": arguments.concurrency * MAX_MODEL_LEN // 2,
        "--cache-ram": 0,
        "--log-verbosity": 0,
    }
    return [str(LLAMA_SERVER), *flags(options), "--kv-unified", "--no-ui"]


def llama_cpp_few_command(arguments: argparse.Namespace, port: int) -> list[str]:
    """The same with slots for FEW_SLOTS requests, each with a KV cache of its own; the others wait."""
    few = argparse.Namespace(**vars(arguments) | {"concurrency": FEW_SLOTS})
    command = llama_cpp_command(few, port)
    command[command.index("--ctx-size") + 1] = str(FEW_SLOTS * MAX_MODEL_LEN)
    return ["--no-kv-unified" if part == "--kv-unified" else part for part in command]


def flags(options: dict[str, object]) -> list[str]:
    """Options as a command line has them."""
    return [str(part) for pair in options.items() for part in pair]


@contextmanager
def running(command: list[str], port: int) -> Iterator[int]:
    """A server, ready; its process id. Ended as Ctrl-C ends it."""
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_up(server, port)
        yield server.pid
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


def family(pid: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(int(child) for child in children)]


COMMANDS = {"octavo": octavo_command, "llama_cpp": llama_cpp_command, "llama_cpp_16_slots": llama_cpp_few_command}


if __name__ == "__main__":
    main()
