"""Runs octavo and its peers in turn on the same requests, and prints how they compare.

    python -m benchmarks.peers.compare --case single octavo=MODEL.gguf llama_cpp=MODEL.gguf openvino=FOLDER

Each engine runs once a round, in a process of its own: A B C A B C. Other work on the machine then hits all of them
alike, and the table shows medians over the rounds of figures relative to those of the first engine in the same round.
The JSON lines of all runs go to --output. `setup.sh` makes the peers' environments, `make_*` their models.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.record import ROOT
from benchmarks.workload import CASE_BY_NAME

# Where each engine's adapter is, and the interpreter that has the engine.
MODULE_BY_ENGINE = {
    "octavo": "benchmarks.throughput",
    "llama_cpp": "benchmarks.peers.run_llama_cpp",
    "xllamacpp": "benchmarks.peers.run_xllamacpp",
    "openvino": "benchmarks.peers.run_openvino",
    "transformers": "benchmarks.peers.run_transformers",
    "vllm": "benchmarks.peers.run_vllm",
}
PYTHON_BY_ENGINE = {
    "octavo": Path(sys.executable),
    "llama_cpp": Path(sys.executable),  # the server is a program; its client needs only the standard library
    "xllamacpp": ROOT / ".peers" / "xllamacpp" / "bin" / "python",
    "openvino": ROOT / ".peers" / "openvino" / "bin" / "python",
    "transformers": ROOT / ".peers" / "transformers" / "bin" / "python",
    "vllm": ROOT / ".peers" / "vllm" / "bin" / "python",
}
# The figures of the table; of rates more is better, of the others less.
RATES_BY_CASE = {
    "single": ("output_tokens_per_s", "decode_tokens_per_s"),
    "prefill": ("prompt_tokens_per_s",),
    "mixed": ("total_tokens_per_s", "output_tokens_per_s"),
}
COSTS = ("ready_s", "rss_bytes", "peak_rss_bytes")

Figures = dict[str, Any]


class Contender(NamedTuple):
    """An engine with a model."""

    engine: str
    model: Path

    @property
    def label(self) -> str:
        """How the table calls it."""
        return f"{self.engine} {self.model.name}"


def main() -> None:
    """Run what the command line asks for; print the table."""
    parser = argparse.ArgumentParser(description="Compare engines on one case of the workload.")
    parser.add_argument(
        "contenders", nargs="+", type=parse_contender, metavar="ENGINE=MODEL", help="first: the measure"
    )
    parser.add_argument("--case", choices=CASE_BY_NAME, default="single")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=3, help="runs in each process, of which the fastest counts")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--output", type=Path, help="append the JSON lines of all runs to this file")
    arguments = parser.parse_args()
    options = ["--case", arguments.case, "--threads", str(arguments.threads), "--runs", str(arguments.runs)]
    rounds = []
    for _ in range(arguments.rounds):
        figures_of_round = [run_once(contender, options) for contender in arguments.contenders]
        rounds.append(figures_of_round)
        if arguments.output:
            with arguments.output.open("a") as file:
                file.writelines(json.dumps(figures) + "\n" for figures in figures_of_round)
    print(table(arguments.contenders, rounds, RATES_BY_CASE[arguments.case] + COSTS))


def parse_contender(text: str) -> Contender:
    """ENGINE=MODEL as a Contender. Raises argparse.ArgumentTypeError for an engine that is not known."""
    engine, _, model = text.partition("=")
    if engine not in MODULE_BY_ENGINE or not model:
        raise argparse.ArgumentTypeError(f"{text!r} is not ENGINE=MODEL with one of {', '.join(MODULE_BY_ENGINE)}")
    return Contender(engine, Path(model).resolve())


def run_once(contender: Contender, options: list[str]) -> Figures:
    """The figures that one engine prints. What it writes to stderr is shown only if it fails."""
    command = [str(PYTHON_BY_ENGINE[contender.engine]), "-m", MODULE_BY_ENGINE[contender.engine]]
    command += ["--model", str(contender.model), *options]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{contender.label} failed with status {result.returncode}:\n{result.stderr}")
    figures: Figures = json.loads(result.stdout.splitlines()[-1])
    return figures


def table(contenders: list[Contender], rounds: list[list[Figures]], names: tuple[str, ...]) -> str:
    """A line an engine: the median of each figure, and in brackets of its ratio to the first engine's."""
    width = max(len(contender.label) for contender in contenders)
    lines = [" " * width + "".join(f"{name:>27}" for name in names)]
    for place, contender in enumerate(contenders):
        cells = []
        for name in names:
            value = statistics.median(figures[place][name] for figures in rounds)
            ratio = statistics.median(figures[place][name] / figures[0][name] for figures in rounds)
            cells.append(f"{readable(name, value):>17} ({ratio:6.2f}x)")
        lines.append(f"{contender.label:<{width}}" + "".join(f"{cell:>27}" for cell in cells))
    return "\n".join(lines)


def readable(name: str, value: float) -> str:
    """A figure with its unit."""
    if name.endswith("_bytes"):
        return f"{value / 2**20:.0f} MiB"
    return f"{value:.2f} s" if name.endswith("ready_s") else f"{value:.1f}/s"


if __name__ == "__main__":
    main()
