"""Measures one server with three load testers in turn, octavo bench, aiperf and guidellm, and prints how they agree.

    python -m benchmarks.peers.load_testers --model MODEL.gguf [--rounds 3] [--requests 48] [--concurrency 4]

All three send the same prompts to `octavo serve`, in a closed loop, and ask for as many tokens each. The server has
half of the CPUs to itself and caches no prefixes: no tester disturbs what it measures, and none profits from another.
No two runs are equally fast, so each tester's figures are compared with what the server itself told of that very run at
/metrics. `setup.sh aiperf guidellm` makes the testers' environments.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import record
from benchmarks.peers.run_llama_cpp import free_port
from benchmarks.serving import flags, running
from octavo.bench.benchmark import Settings, Target, find_target
from octavo.bench.http_client import Server
from octavo.bench.lengths import Lengths
from octavo.bench.load import run_load
from octavo.bench.report import summarize
from octavo.bench.workload import LoadRequest, RandomWorkload

INPUT_LEN = Lengths.parse("uniform:64,256")
OUTPUT_LEN = Lengths.parse("uniform:32,96")
BODY = {"ignore_eos": True, "temperature": 0}
TPOT = "request_time_per_output_token_seconds"
PEERS = record.ROOT / ".peers"
# A tokenizer of one token, for testers that insist on one.
TOKENIZER = {
    "version": "1.0",
    "added_tokens": [],
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"},
}
TOKENIZER_CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "?"}


class Figures(NamedTuple):
    """What every tester tells, by its own clock. Latencies are means over requests."""

    output_tokens_per_s: float
    ttft_ms: float
    itl_ms: float  # of a request: from its first token to its last, by the tokens after the first


class Run(NamedTuple):
    """One run of one tester, and the same figures as the server had them."""

    tester: Figures
    server: Figures


class Job(NamedTuple):
    """What to measure."""

    base_url: str
    target: Target
    requests: Sequence[LoadRequest]
    concurrency: int
    folder: Path  # for files of the testers

    @property
    def model(self) -> str:
        """The model's name at the server."""
        name: str = self.target.about["model"]["id"]
        return name


def main() -> None:
    """Measure as the command line asks; print a table, and a JSON line for each run."""
    parser = argparse.ArgumentParser(description="Compare load testers on one server.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=48)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--testers", nargs="+", choices=TESTERS, default=list(TESTERS))
    arguments = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    server_cpus, tester_cpus = cpus[: max(1, len(cpus) // 2)], cpus[len(cpus) // 2 :]
    port, machine = free_port(), record.machine()
    runs_by_tester: dict[str, list[Run]] = {name: [] for name in arguments.testers}
    with running(serve_command(arguments, port, server_cpus), port), tempfile.TemporaryDirectory() as folder:
        os.sched_setaffinity(0, tester_cpus)
        job = prepare(port, arguments, Path(folder))
        for _ in range(arguments.rounds):
            for name in arguments.testers:
                run = watch(job, TESTERS[name])
                runs_by_tester[name].append(run)
                about = {"tester": name, "model": arguments.model.name, "commit": record.commit()}
                server = {f"server_{name}": value for name, value in run.server._asdict().items()}
                print(json.dumps(about | run.tester._asdict() | server | machine), flush=True)
    print(table(runs_by_tester))


def serve_command(arguments: argparse.Namespace, port: int, cpus: Sequence[int]) -> list[str]:
    """octavo serve, on these CPUs."""
    octavo = [sys.executable, "-c", "from octavo.cli import main; main()", "serve", str(arguments.model)]
    options = {"--port": port, "--max-num-seqs": arguments.concurrency, "--num-threads": len(cpus)}
    pinned = ["taskset", "--cpu-list", ",".join(map(str, cpus))]
    return [*pinned, *octavo, *flags(options), "--max-model-len", "2048", "--no-enable-prefix-caching"]


def prepare(port: int, arguments: argparse.Namespace, folder: Path) -> Job:
    """Make the prompts, warm the server up, and write down what the testers read."""
    base_url = f"http://127.0.0.1:{port}"
    target = asyncio.run(find_target(Server.parse(base_url), Settings(endpoint="chat")))
    workload = RandomWorkload(arguments.requests, INPUT_LEN, OUTPUT_LEN)
    requests = workload.requests(target.line)
    asyncio.run(run_load(target.client, requests[: arguments.concurrency]))
    model = target.about["model"]["id"]
    common = {"model": model, **BODY, "stream": True, "stream_options": {"include_usage": True}}
    bodies = [
        common | {"messages": [{"role": "user", "content": request.prompt}], "max_tokens": request.num_output_tokens}
        for request in requests
    ]
    rows = [{"prompt": request.prompt, "output_tokens_count": request.num_output_tokens} for request in requests]
    for name, lines in (("bodies.jsonl", bodies), ("prompts.jsonl", rows)):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER_CONFIG))
    return Job(base_url, target, requests, arguments.concurrency, folder)


def watch(job: Job, tester: Callable[[Job], Figures]) -> Run:
    """Run a tester between two looks at the server's metrics.

    The server does not know when a run begins. But so many requests were under way at any time, so their latencies
    together are that many times as long as the run.
    """
    before = server_totals(job.base_url)
    figures = tester(job)
    total = {name: value - before[name] for name, value in server_totals(job.base_url).items()}
    return Run(
        figures,
        Figures(
            job.concurrency * total["generation_tokens_total"] / total["e2e_request_latency_seconds_sum"],
            1000 * total["time_to_first_token_seconds_sum"] / total["time_to_first_token_seconds_count"],
            1000 * total[f"{TPOT}_sum"] / total[f"{TPOT}_count"],
        ),
    )


def server_totals(base_url: str) -> dict[str, float]:
    """What the server has counted since its start, by the names at /metrics."""
    with urllib.request.urlopen(f"{base_url}/metrics") as response:
        text = response.read().decode()
    samples = re.findall(r'^octavo:(\w+){model_name="[^"]*"} (\S+)$', text, re.MULTILINE)
    return {name: float(value) for name, value in samples}


def run_octavo(job: Job) -> Figures:
    """octavo bench, as a library: it sends the very prompts."""
    report = summarize(asyncio.run(run_load(job.target.client, job.requests, max_concurrency=job.concurrency)))
    assert report.ttft is not None and report.tpot is not None and not report.num_failed, report.render()
    return Figures(report.output_tokens_per_s, report.ttft.mean_ms, report.tpot.mean_ms)


def run_aiperf(job: Job) -> Figures:
    """aiperf."""
    options: dict[str, object] = {
        "--model": job.model,
        "--url": job.base_url,
        "--endpoint-type": "chat",
        "--tokenizer": job.folder,
        "--input-file": job.folder / "bodies.jsonl",
        "--custom-dataset-type": "raw-payload",
        "--dataset-sampling-strategy": "sequential",
        "--concurrency": job.concurrency,
        "--request-count": len(job.requests),
        "--output-artifact-dir": job.folder / "aiperf",
        "--ui-type": "none",
    }
    switches = ["--streaming", "--use-server-token-count", "--no-gpu-telemetry", "--no-server-metrics"]
    call([str(PEERS / "aiperf" / "bin" / "aiperf"), "profile", *flags(options), *switches])
    told = json.loads((job.folder / "aiperf" / "profile_export_aiperf.json").read_text())
    names = ("output_token_throughput", "time_to_first_token", "inter_token_latency")
    return Figures(*(told[name]["avg"] for name in names))


def run_guidellm(job: Job) -> Figures:
    """guidellm."""
    backend = {
        "kind": "openai_http",
        "target": job.base_url,
        "model": job.model,
        "request_format": "/v1/chat/completions",
    }
    options: dict[str, object] = {
        "--backend": json.dumps(backend | {"extras": {"body": BODY}}),
        "--profile": json.dumps({"kind": "concurrent", "streams": [job.concurrency]}),
        "--constraint": json.dumps({"kind": "max_requests", "count": len(job.requests)}),
        "--tokenizer": json.dumps({"kind": "huggingface_auto", "model": str(job.folder)}),
        "--data": json.dumps({"kind": "json_file", "path": str(job.folder / "prompts.jsonl")}),
        "--output": json.dumps({"kind": "json", "path": str(job.folder / "guidellm.json")}),
    }
    call([str(PEERS / "guidellm" / "bin" / "guidellm"), "run", *flags(options), "--disable-console"])
    [benchmark] = json.loads((job.folder / "guidellm.json").read_text())["benchmarks"]
    names = ("output_tokens_per_second", "time_to_first_token_ms", "inter_token_latency_ms")
    return Figures(*(benchmark["metrics"][name]["successful"]["mean"] for name in names))


def call(command: list[str]) -> None:
    """Run a tester; what it writes is shown only if it fails."""
    finished = subprocess.run(command, capture_output=True, text=True)
    if finished.returncode:
        sys.exit(f"{command[0]} ended with {finished.returncode}:\n{(finished.stdout + finished.stderr)[-3000:]}")


def table(runs_by_tester: dict[str, list[Run]]) -> str:
    """A line a tester: medians over its runs of each figure and, in brackets, of its ratio to the server's own."""
    lines = ["| | output tokens/s | TTFT, ms | ITL, ms |", "| --- | --- | --- | --- |"]
    for name, runs in runs_by_tester.items():
        cells = [name]
        for place in range(len(Figures._fields)):
            value = statistics.median(run.tester[place] for run in runs)
            ratio = statistics.median(run.tester[place] / run.server[place] for run in runs)
            cells.append(f"{value:.1f} ({ratio:.3f})")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


TESTERS: dict[str, Callable[[Job], Figures]] = {
    "octavo": run_octavo,
    "aiperf": run_aiperf,
    "guidellm": run_guidellm,
}


if __name__ == "__main__":
    main()
