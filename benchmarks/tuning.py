"""Measures what the knobs of `octavo serve` do, draws the curves, and writes them into docs/tuning.md.

    python -m benchmarks.tuning [--model MODEL.gguf] [--requests 32] [--only NAME ...]

The page has a place for each measurement, between `<!-- NAME -->` and `<!-- end -->`: a table, or a command and what it
printed. Charts go to docs/tuning/. By default the demo model is served, and all of it takes eight minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks import record
from benchmarks.peers.run_llama_cpp import free_port
from benchmarks.serving import flags, running
from octavo.bench.benchmark import Settings, find_target, measure
from octavo.bench.chart import line_chart
from octavo.bench.http_client import Server
from octavo.bench.lengths import Lengths
from octavo.bench.report import Report, summarize
from octavo.bench.sweep import SweepPoint
from octavo.bench.sweep_report import knee_sentence, latency_chart, throughput_chart
from octavo.bench.workload import RandomWorkload
from tools.fetch_model import fetch

PAGE = record.ROOT / "docs" / "tuning.md"
CHARTS = PAGE.with_suffix("")
OCTAVO = [sys.executable, "-c", "from octavo.cli import main; main()"]
INPUT_LEN, OUTPUT_LEN = "lognormal:160,0.7", "lognormal:64,0.6"
FULL = "full"  # as long as the context, but for FREE_LEN tokens
FREE_LEN = 64
CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64)


class Knob(NamedTuple):
    """A flag of the server, and the load under which its values differ."""

    name: str
    flag: str
    values: tuple[int, ...]
    label: str
    unit: int = 1  # what one of `values` is
    input_len: str = INPUT_LEN
    output_len: str = OUTPUT_LEN
    concurrency: int = 32
    num_requests: int | None = None  # None: as many as the command line asks for


SWEEP = Knob("sweep", "", (), "")
KNOBS = (
    Knob("max_num_seqs", "--max-num-seqs", (1, 4, 16, 64), "max_num_seqs", concurrency=64),
    Knob(
        "max_num_batched_tokens",
        "--max-num-batched-tokens",
        (64, 128, 256, 512, 1024),
        "max_num_batched_tokens",
        input_len="lognormal:300,0.7",
        concurrency=8,
        num_requests=16,
    ),
    Knob("kv_memory", "--kv-cache-memory-bytes", (64, 96, 160, 320), "KV cache, MiB", 1 << 20, concurrency=32),
    Knob(
        "max_model_len",
        "--max-model-len",
        (512, 1024, 2048, 4096),
        "max_model_len",
        input_len=FULL,
        output_len="16",
        concurrency=1,
        num_requests=2,
    ),
)


class Point(NamedTuple):
    """What one value brought."""

    value: int
    report: Report
    num_blocks: int
    num_preemptions: int


def main() -> None:
    """Measure what the command line names, and write the page."""
    parser = argparse.ArgumentParser(description="Measure the knobs of a server and write docs/tuning.md.")
    parser.add_argument("--model", type=Path, default=None, help="by default the demo model")
    parser.add_argument("--requests", type=int, default=32, help="of each load")
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, default=list(MEASUREMENTS))
    arguments = parser.parse_args()
    arguments.model = arguments.model or fetch()
    machine = record.machine()
    where = f"{arguments.model.name} on {machine['num_cpus']} CPUs of an {machine['cpu']}"
    write("machine", f"Measured with {where}, commit {record.commit()}, {arguments.requests} requests a load.")
    CHARTS.mkdir(exist_ok=True)
    for name in arguments.only:
        text = MEASUREMENTS[name](arguments)
        write(name, text)
        print(f"## {name}\n{text}\n", flush=True)


def write(name: str, text: str) -> None:
    """Put a text into its place on the page."""
    page = PAGE.read_text()
    place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    assert place.search(page), f"{PAGE} has no place for {name}"
    PAGE.write_text(place.sub(lambda found: f"{found[1]}{text}\n{found[2]}", page))


def sweep(arguments: argparse.Namespace) -> str:
    """The same load at growing concurrency, and the knee."""
    points = []
    with server(arguments, f"--max-num-seqs {max(CONCURRENCIES)} --max-model-len 2048") as port:
        for concurrency in CONCURRENCIES:
            num_requests = max(arguments.requests, concurrency)
            report = load(port, num_requests, SWEEP._replace(concurrency=concurrency))
            points.append(SweepPoint(concurrency, report))
    charts = {"throughput": throughput_chart("concurrency", points)}
    for name, title in (("ttft", "Time to first token"), ("itl", "Inter-token latency")):
        charts[name] = latency_chart("concurrency", points, name, title)
    rows = [row(f"{point.value:g}", point.report) for point in points]
    lines = [knee_sentence("concurrency", points), "", *save("sweep", charts), "", *table("under way", rows)]
    return "\n".join(lines)


def turn(knob: Knob) -> Callable[[argparse.Namespace], str]:
    """The measurement of a knob: a server for each value, under the same load."""

    def measured(arguments: argparse.Namespace) -> str:
        points = []
        for value in knob.values:
            input_len = str(value - FREE_LEN) if knob.input_len == FULL else None
            with server(arguments, f"--max-model-len 2048 {knob.flag} {value * knob.unit}") as port:
                num_requests = knob.num_requests or arguments.requests
                report = load(port, num_requests, knob, input_len)
                state = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/load"))
            points.append(Point(value, report, state["num_blocks"], state["num_preemptions_total"]))
        rows = [row(f"{point.value}", point.report, point.num_blocks, point.num_preemptions) for point in points]
        return "\n".join([*draw(knob, points), "", *table(knob.label, rows, ("KV blocks", "preemptions"))])

    return measured


def draw(knob: Knob, points: Sequence[Point]) -> list[str]:
    """Throughput and the latencies that it costs, over the values of a knob; the lines of the page that show them."""
    throughput = [(point.value, point.report.output_tokens_per_s) for point in points]
    charts = {"throughput": line_chart("Throughput", knob.label, "output tokens/s", {"output": throughput})}
    for name, title, tail in (("ttft", "Time to first token", "p95"), ("itl", "Inter-token latency", "p99")):
        latencies = [(point.value, getattr(point.report, name)) for point in points]
        lines = {
            part: [(value, getattr(latency, f"{part}_ms")) for value, latency in latencies] for part in ("p50", tail)
        }
        charts[name] = line_chart(title, knob.label, "ms", lines)
    return save(knob.name, charts)


def save(name: str, chart_by_kind: Mapping[str, str]) -> list[str]:
    """Write the charts down; the lines of the page that show them."""
    for kind, chart in chart_by_kind.items():
        (CHARTS / f"{name}_{kind}.svg").write_text(chart)
    return [f'<img src="tuning/{name}_{kind}.svg" width="49%" alt="{name}: {kind}">' for kind in chart_by_kind]


def too_long_context(arguments: argparse.Namespace) -> str:
    """A context that the memory cannot hold: the server says so and does not start."""
    return shell(arguments, "serve", "--max-model-len 8192 --kv-cache-memory-bytes 100000000")


def ignored_queue(arguments: argparse.Namespace) -> str:
    """The same requests at once and eight at a time: a closed loop does not show a queue."""
    common = f"--num-prompts {min(40, arguments.requests)} --input-len {INPUT_LEN} --output-len {OUTPUT_LEN}"
    with server(arguments, "--max-num-seqs 8 --max-model-len 2048") as port:
        closed = shell(arguments, "bench serve", f"{common} --max-concurrency 8", port)
        return f"{closed}\n\n{shell(arguments, 'bench serve', f'{common} --seed 1', port)}"


def one_length(arguments: argparse.Namespace) -> str:
    """Prompts of one length, and prompts of the same mean length as they come in life."""
    common = f"--num-prompts {arguments.requests} --max-concurrency 16"
    with server(arguments, "--max-num-seqs 16 --max-model-len 2048") as port:
        same = shell(arguments, "bench serve", f"{common} --input-len 200 --output-len 64", port)
        mixed = f"{common} --input-len lognormal:125,1 --output-len lognormal:53,0.6 --seed 1"
        return f"{same}\n\n{shell(arguments, 'bench serve', mixed, port)}"


def no_warmup(arguments: argparse.Namespace) -> str:
    """The first requests of a fresh server, and the same again."""
    common = "--num-prompts 4 --num-warmups 0 --max-concurrency 1 --input-len 400 --output-len 16"
    with server(arguments, "--max-model-len 2048") as port:
        first = shell(arguments, "bench serve", common, port)
        return f"{first}\n\n{shell(arguments, 'bench serve', f'{common} --seed 1', port)}"


@contextmanager
def server(arguments: argparse.Namespace, options: str) -> Iterator[int]:
    """A server that is ready; its port."""
    port = free_port()
    command = [*OCTAVO, "serve", str(arguments.model), *flags({"--port": port}), *options.split()]
    with running(command, port):
        yield port


def load(port: int, num_requests: int, knob: Knob, input_len: str | None = None) -> Report:
    """Put a knob's load on the server, as a closed loop."""
    settings = Settings(max_concurrency=knob.concurrency)
    lengths = Lengths.parse(input_len or knob.input_len), Lengths.parse(knob.output_len)
    workload = RandomWorkload(num_requests, *lengths, seed=knob.concurrency)  # no load of a sweep finds prompts cached

    async def run() -> Report:
        target = await find_target(Server.parse(f"http://127.0.0.1:{port}"), settings)
        return summarize(await measure(target, workload, settings))

    return asyncio.run(run())


def shell(arguments: argparse.Namespace, command: str, options: str, port: int | None = None) -> str:
    """A command of octavo and what it printed, as a user would see them."""
    where = ["--base-url", f"http://127.0.0.1:{port}"] if port else [str(arguments.model), "--port", "0"]
    finished = subprocess.run([*OCTAVO, *command.split(), *where, *options.split()], capture_output=True, text=True)
    told = (finished.stdout + finished.stderr).replace(str(arguments.model), arguments.model.name).strip()
    what = f"{command} {options}" if port else f"{command} {arguments.model.name} {options}"
    return f"```\n$ octavo {what}\n{told}\n```"


def row(value: str, report: Report, *more: object) -> str:
    """A line of a table."""
    assert report.ttft is not None and report.itl is not None, report.render()
    ttft, itl = report.ttft, report.itl
    latencies = (ttft.p50_ms, ttft.p95_ms, itl.p50_ms, itl.p95_ms, itl.p99_ms)
    cells = [value, f"{report.output_tokens_per_s:.0f}", *(f"{latency:.0f}" for latency in latencies), *map(str, more)]
    return f"| {' | '.join(cells)} |"


def table(label: str, rows: Sequence[str], more_columns: Sequence[str] = ()) -> list[str]:
    """A table's head and its rows."""
    columns = [label, "output tokens/s", "TTFT p50, ms", "p95", "ITL p50, ms", "p95", "p99", *more_columns]
    return [f"| {' | '.join(columns)} |", f"| {' | '.join(['---'] * len(columns))} |", *rows]


MEASUREMENTS: dict[str, Callable[[argparse.Namespace], str]] = {
    "sweep": sweep,
    **{knob.name: turn(knob) for knob in KNOBS},
    "too_long_context": too_long_context,
    "ignored_queue": ignored_queue,
    "one_length": one_length,
    "no_warmup": no_warmup,
}


if __name__ == "__main__":
    main()
