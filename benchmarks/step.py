"""Measures whole steps of a model, op by op and as a plan: one JSON line a case.

    python -m benchmarks.step --model MODEL [--dtype D] [--quantization Q] [--kv-cache-dtype T] [--threads N]

Both ways take turns in one process over the same weights and the same cache, and give the same bits. The limits,
reading from memory and multiply-adds on registers, are measured first, with the same threads. With one thread all times
are CPU time, which other work on the machine does not lengthen.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import record
from octavo.backends.native.backend import NativeBackend
from octavo.backends.native.isa import load_extension
from octavo.backends.ops import Float32Array, KVShape, StepBatch
from octavo.config import BLOCK_SIZE, ModelConfig
from octavo.models.registry import build_model
from octavo.weights.checkpoint import open_checkpoint

SEQ_LEN = 256  # of each decoding request
PROMPT_LEN = 512
CASES = {"decode 1": (1, 1), "decode 16": (16, 1), "decode 64": (64, 1), "prefill 512": (1, PROMPT_LEN)}
MAX_REQUESTS = 64
TURN_S = 0.05  # each way runs so long before it is the other's turn
CASE_S = 6.0
READ_FLOATS = 64 * 2**20


def make_batch(num_reqs: int, num_new_tokens: int) -> StepBatch:
    """Requests with so many tokens to compute each, and logits wanted for the last."""
    end = max(SEQ_LEN, num_new_tokens)
    num_blocks = end // BLOCK_SIZE
    positions = np.tile(np.arange(end - num_new_tokens, end, dtype=np.int32), num_reqs)
    block_table = np.arange(num_reqs * num_blocks, dtype=np.int32).reshape(num_reqs, num_blocks)
    rows = np.repeat(np.arange(num_reqs), num_new_tokens)
    query_start_loc = np.arange(0, len(positions) + 1, num_new_tokens, dtype=np.int32)
    return StepBatch(
        input_ids=np.random.default_rng(0).integers(100, 10_000, len(positions)).astype(np.int32),
        positions=positions,
        slot_mapping=block_table[rows, positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE,
        query_start_loc=query_start_loc,
        seq_lens=np.full(num_reqs, end, np.int32),
        block_table=block_table,
        logits_rows=query_start_loc[1:] - 1,
    )


def fastest_in_turn_s(num_threads: int, runs: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Seconds of the fastest call of each: what else the machine does can only slow one down."""
    clock_s = time.thread_time if num_threads == 1 else time.perf_counter
    fastest = dict.fromkeys(runs, float("inf"))
    end_s = time.perf_counter() + CASE_S
    while time.perf_counter() < end_s:
        for name, run in runs.items():
            turn_end_s = time.perf_counter() + TURN_S
            while time.perf_counter() < turn_end_s:
                begin_s = clock_s()
                run()
                fastest[name] = min(fastest[name], clock_s() - begin_s)
    return fastest


class StepBenchmark:
    """One model, ready to run both ways."""

    def __init__(self, args: argparse.Namespace) -> None:
        checkpoint = open_checkpoint(args.model)
        config = checkpoint.config
        backend = NativeBackend(args.threads, dtype=args.dtype, quantization=args.quantization)
        one_by_one = NativeBackend(args.threads, is_recorded=False)
        model = build_model(config, checkpoint.tensors, backend, PROMPT_LEN)
        num_blocks = MAX_REQUESTS * SEQ_LEN // BLOCK_SIZE
        shape = KVShape(
            config.num_layers, num_blocks, BLOCK_SIZE, config.num_kv_heads, config.head_dim, args.kv_cache_dtype
        )
        kv = backend.allocate_kv(shape)
        self._steps = {"ops": one_by_one.prepare(model, kv), "plan": backend.prepare(model, kv)}
        self._weight_bytes = sum(backend.weight_bytes_by_kind.values())
        self._config = config
        self._num_threads = args.threads
        self._limits = measure_limits(args.threads)

    def measure(self, name: str) -> dict[str, Any]:
        """Times of a step, and what share of the limits it reaches as a plan."""
        batch = make_batch(*CASES[name])
        logits: dict[str, Float32Array] = {way: step.run(batch) for way, step in self._steps.items()}
        if logits["ops"].tobytes() != logits["plan"].tobytes():
            raise RuntimeError(f"{name}: the plan and its ops differ")
        seconds = fastest_in_turn_s(
            self._num_threads, {way: partial(step.run, batch) for way, step in self._steps.items()}
        )
        num_flops = 2 * (
            batch.num_tokens * num_layer_weights(self._config)
            + len(batch.logits_rows) * self._config.hidden_size * self._config.vocab_size
        )
        return {
            "case": name,
            "ops_ms": seconds["ops"] * 1e3,
            "plan_ms": seconds["plan"] * 1e3,
            "ops_over_plan": seconds["ops"] / seconds["plan"],
            "tokens_per_s": batch.num_tokens / seconds["plan"],
            "share_of_read": self._weight_bytes / seconds["plan"] / self._limits["bytes_per_s"],
            "share_of_fma": num_flops / seconds["plan"] / self._limits["flops_per_s"],
        }


def num_layer_weights(config: ModelConfig) -> int:
    """Parameters of all linear layers but the head."""
    heads = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    attention = config.hidden_size * (2 * heads[0] + 2 * heads[1])
    return config.num_layers * (attention + 3 * config.hidden_size * config.intermediate_size)


def measure_limits(num_threads: int) -> dict[str, float]:
    """What this machine can do at most with these threads."""
    extension = load_extension()
    pool = extension.ThreadPool(num_threads)
    numbers, rounds = np.ones(READ_FLOATS, np.float32), 100_000
    num_flops = extension.run_multiply_adds(pool, rounds)
    seconds = fastest_in_turn_s(
        num_threads,
        {
            "read": lambda: extension.read_floats(pool, numbers),
            "multiply": lambda: extension.run_multiply_adds(pool, rounds),
        },
    )
    return {"bytes_per_s": numbers.nbytes / seconds["read"], "flops_per_s": num_flops / seconds["multiply"]}


def main() -> None:
    """Print one JSON line a case."""
    parser = argparse.ArgumentParser(description="Measure whole steps of a model.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--quantization", default=None)
    parser.add_argument("--kv-cache-dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    args = parser.parse_args()
    about = record.machine() | {"commit": record.commit(), "isa": load_extension().isa, "model": args.model.name}
    about |= {"dtype": args.dtype, "quantization": args.quantization, "kv_cache_dtype": args.kv_cache_dtype}
    benchmark = StepBenchmark(args)
    for name in args.cases:
        result = {key: round(v, 3) if isinstance(v, float) else v for key, v in benchmark.measure(name).items()}
        print(json.dumps(result | {"num_threads": args.threads} | about), flush=True)


if __name__ == "__main__":
    main()
