"""Measures speculative decoding, ours and llama.cpp's: one JSON line a case, and a table.

    python -m benchmarks.speculation --model MODEL.gguf --draft-model SMALL.gguf [--engines ...] [--cases ...]

Each engine is a server in processes of its own. One request after another runs the single-stream cases, greedy: an edit
of a file, which prompt lookup is for, a function to write, and prose. The last case is 32 requests at once. Every
request has the same tokens on every engine, and all of its output counts, past any end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

from benchmarks import record
from benchmarks.peers.run_llama_cpp import SERVER as LLAMA_SERVER
from benchmarks.peers.run_llama_cpp import free_port
from benchmarks.serving import flags, running
from octavo.bench.http_client import Server, events
from octavo.engine.tokenizer import Tokenizer
from octavo.weights.checkpoint import open_checkpoint

NUM_DRAFTS = {"ngram": 8, "draft": 4}
MAX_MODEL_LEN = 2048
BATCH_SIZE = 32
CODE = (record.ROOT / "src" / "octavo" / "core" / "fair_queue.py").read_text()
TOPICS = (
    "an INI file",
    "a CSV file",
    "HTTP headers",
    "a cron line",
    "a semantic version",
    "a URL",
    "Roman numerals",
    "a date",
)
PROMPTS = {
    "edit": f"Rename `tenant` to `customer` everywhere in this file and print the whole file:\n```python\n{CODE}```",
    "write": "Write a Python function that parses an INI file into nested dictionaries, with a docstring and tests.",
    "prose": "Explain to a child why the sky is blue, in about two hundred words.",
}


class Case(NamedTuple):
    """Requests that run together, and how many tokens each of them gets."""

    prompts: Sequence[str]
    num_output_tokens: int


CASES = {name: Case([prompt], 256) for name, prompt in PROMPTS.items()} | {
    f"batch {BATCH_SIZE}": Case(
        [f"Write Python function number {i} that parses {TOPICS[i % len(TOPICS)]}." for i in range(BATCH_SIZE)], 64
    )
}
WARMUP = Case([PROMPTS["write"]], 64)


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description="Measure speculative decoding.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--draft-model", type=Path, required=True)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES), help="one after another")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--scale", type=float, default=1.0, help="share of the output tokens, for a quick look")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    tokenizer = Tokenizer(open_checkpoint(arguments.model).tokenizer_spec)
    about = {"model": arguments.model.name, "draft_model": arguments.draft_model.name, "commit": record.commit()}
    results: dict[str, dict[str, float]] = {}
    for engine in arguments.engines:
        port = free_port()
        with running(ENGINES[engine](arguments, engine.partition(" ")[2], port), port):
            server = Server.parse(f"http://127.0.0.1:{port}")
            asyncio.run(run_case(server, tokenizer, WARMUP, 1.0))
            for name in arguments.cases:
                figures = asyncio.run(run_case(server, tokenizer, CASES[name], arguments.scale))
                results.setdefault(engine, {})[name] = figures["tokens_per_s"]
                line = {"engine": engine, "case": name} | figures | about | record.machine()
                print(json.dumps(line), flush=True)
    print(table(results))


async def run_case(server: Server, tokenizer: Tokenizer, case: Case, scale: float) -> dict[str, float]:
    """Run the requests of a case together. Tokens a second are those after each request's first."""
    num_tokens = max(2, int(case.num_output_tokens * scale))
    started_s = time.perf_counter()
    times = await asyncio.gather(*(complete(server, tokens(tokenizer, text), num_tokens) for text in case.prompts))
    first_s, last_s = min(first for first, _ in times), max(last for _, last in times)
    return {
        "num_output_tokens": num_tokens * len(times),
        "ttft_s": round(max(first for first, _ in times) - started_s, 3),
        "total_s": round(last_s - started_s, 3),
        "tokens_per_s": round((num_tokens - 1) * len(times) / (last_s - first_s), 2),
    }


def tokens(tokenizer: Tokenizer, text: str) -> list[int]:
    """The question as the model is asked it."""
    asked = tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True)
    return tokenizer.encode(asked, add_special_tokens=False)


async def complete(server: Server, prompt: list[int], num_tokens: int) -> tuple[float, float]:
    """When the first and the last piece of an answer came."""
    body = {"prompt": prompt, "max_tokens": num_tokens, "temperature": 0, "ignore_eos": True, "stream": True}
    times: list[float] = []
    async with aclosing(events(server.request("POST", "/v1/completions", json.dumps(body).encode()))) as answer:
        async for _ in answer:
            times.append(time.perf_counter())
    return times[0], times[-1]


def octavo_command(arguments: argparse.Namespace, method: str, port: int) -> list[str]:
    """A server of this project, as a user would start it."""
    options: dict[str, object] = {"--port": port, "--max-num-seqs": BATCH_SIZE, "--max-model-len": MAX_MODEL_LEN}
    options["--num-threads"] = arguments.threads
    config: dict[str, object] = {"num_speculative_tokens": NUM_DRAFTS.get(method, 0)}
    config |= {"method": "ngram"} if method == "ngram" else {"model": str(arguments.draft_model)}
    if method != "none":
        options["--speculative-config"] = json.dumps(config)
    return [str(Path(sys.executable).with_name("octavo")), "serve", str(arguments.model), *flags(options)]


def llama_cpp_command(arguments: argparse.Namespace, method: str, port: int) -> list[str]:
    """llama.cpp's server with its own ways to guess; looked up are as many tokens as ours looks up at most."""
    options: dict[str, object] = {
        "--model": arguments.model,
        "--port": port,
        "--threads": arguments.threads,
        "--threads-batch": arguments.threads,
        "--parallel": BATCH_SIZE,
        "--ctx-size": BATCH_SIZE * MAX_MODEL_LEN // 2,
        "--cache-ram": 0,
        "--log-verbosity": 0,
    }
    if method == "ngram":
        options |= {"--spec-type": "ngram-simple", "--spec-ngram-simple-size-n": 4}
        options["--spec-ngram-simple-size-m"] = NUM_DRAFTS["ngram"]
    elif method == "draft":
        options |= {"--spec-type": "draft-simple", "--spec-draft-model": arguments.draft_model}
        options["--spec-draft-n-max"] = NUM_DRAFTS["draft"]
    return [str(LLAMA_SERVER), *flags(options), "--kv-unified", "--no-ui"]


def table(results: dict[str, dict[str, float]]) -> str:
    """Tokens a second, and how many times those of the same engine without speculation."""
    cases = list(next(iter(results.values())))
    lines = [f"| | {' | '.join(cases)} |", "| --- " * (1 + len(cases)) + "|"]
    for engine, rates in results.items():
        plain = results.get(f"{engine.partition(' ')[0]} none", {})
        cells = [
            f"{rate:.1f}" + (f" ({rate / plain[case]:.2f}x)" if case in plain else "") for case, rate in rates.items()
        ]
        lines.append(f"| {engine} | {' | '.join(cells)} |")
    return "\n".join(lines)


METHODS = ("none", "ngram", "draft")
ENGINES = {f"octavo {method}": octavo_command for method in METHODS}
ENGINES |= {f"llama_cpp {method}": llama_cpp_command for method in METHODS}


if __name__ == "__main__":
    main()
