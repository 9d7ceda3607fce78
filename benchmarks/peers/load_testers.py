"""Measures one server with three load testers in turn, octavo bench, aiperf and guidellm, and prints how they agree.

    python -m benchmarks.peers.load_testers --model MODEL.gguf [--rounds 3] [--requests 48] [--concurrency 4]

All three send the same prompts to `octavo serve`, in a closed loop, and ask for as many tokens each. The server has
half of the CPUs to itself and caches no prefixes: no tester disturbs what it measures, and none profits from another.
No two runs are equally fast, so each tester's latencies are compared with what the server itself told of that very run
at /metrics. `setup.sh aiperf guidellm` makes the testers' environments.
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
from typing import Any, NamedTuple

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
OUTPUT_LEN = 64
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
    """One run of one tester, and what the server told of it."""

    told: Figures
    server_ttft_ms: float
    server_itl_ms: float

    @property
    def ttft_ratio(self) -> float:
        """The tester's time to first token over the server's."""
        return self.told.ttft_ms / self.server_ttft_ms

    @property
    def itl_ratio(self) -> float:
        """The tester's inter-token latency over the server's."""
        return self.told.itl_ms / self.server_itl_ms


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
                server = {"server_ttft_ms": run.server_ttft_ms, "server_itl_ms": run.server_itl_ms}
                print(json.dumps(about | run.told._asdict() | server | machine), flush=True)
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
    target = asyncio.run(find_target(Server.parse(base_url), Settings()))
    workload = RandomWorkload(arguments.requests, INPUT_LEN, Lengths.parse(str(OUTPUT_LEN)))
    requests = workload.requests(target.line)
    asyncio.run(run_load(target.client, requests[: arguments.concurrency]))
    prompts = [json.dumps({"text": request.prompt, "prompt": request.prompt}) for request in requests]
    (folder / "prompts.jsonl").write_text("\n".join(prompts) + "\n")
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER_CONFIG))
    return Job(base_url, target, requests, arguments.concurrency, folder)


def watch(job: Job, tester: Callable[[Job], Figures]) -> Run:
    """Run a tester between two looks at the server's metrics."""
    before = server_totals(job.base_url)
    told = tester(job)
    num_requests, ttft_s, num_timed, tpot_s = (
        after - then for after, then in zip(server_totals(job.base_url), before, strict=True)
    )
    return Run(told, 1000 * ttft_s / num_requests, 1000 * tpot_s / num_timed)


def server_totals(base_url: str) -> list[float]:
    """Requests that got a first token and their times to it, in seconds; then the same of mean times between tokens."""
    with urllib.request.urlopen(f"{base_url}/metrics") as response:
        text = response.read().decode()
    totals = []
    for name in ("time_to_first_token_seconds", "request_time_per_output_token_seconds"):
        for part in ("count", "sum"):
            found = re.search(rf"^octavo:{name}_{part}{{.*}} (\S+)$", text, re.MULTILINE)
            assert found, f"/metrics has no {name}"
            totals.append(float(found[1]))
    return totals


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
        "--endpoint-type": "completions",
        "--tokenizer": job.folder,
        "--input-file": job.folder / "prompts.jsonl",
        "--custom-dataset-type": "single-turn",
        "--dataset-sampling-strategy": "sequential",
        "--concurrency": job.concurrency,
        "--request-count": len(job.requests),
        "--extra-inputs": json.dumps(body()),
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
    backend = {"kind": "openai_http", "target": job.base_url, "model": job.model, "request_format": "/v1/completions"}
    options: dict[str, object] = {
        "--backend": json.dumps(backend | {"extras": {"body": body()}}),
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


def body() -> dict[str, Any]:
    """What each request asks for, beside its prompt."""
    return {"max_tokens": OUTPUT_LEN, "ignore_eos": True, "temperature": 0}


def call(command: list[str]) -> None:
    """Run a tester; what it writes is shown only if it fails."""
    finished = subprocess.run(command, capture_output=True, text=True)
    if finished.returncode:
        sys.exit(f"{command[0]} ended with {finished.returncode}:\n{finished.stdout}\n{finished.stderr}")


def table(runs_by_tester: dict[str, list[Run]]) -> str:
    """A line a tester: medians over its runs."""
    lines = [
        "| | output tokens/s | TTFT, ms | ITL, ms | TTFT over the server's | ITL over the server's |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, runs in runs_by_tester.items():
        figures = [f"{statistics.median(values):.1f}" for values in zip(*(run.told for run in runs), strict=True)]
        ratios = [[run.ttft_ratio for run in runs], [run.itl_ratio for run in runs]]
        cells = [name, *figures, *(f"{statistics.median(values):.3f}" for values in ratios)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


TESTERS: dict[str, Callable[[Job], Figures]] = {
    "octavo": run_octavo,
    "aiperf": run_aiperf,
    "guidellm": run_guidellm,
}


if __name__ == "__main__":
    main()
