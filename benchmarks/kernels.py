"""Measures the native kernels alone: one JSON line each, as a share of what this machine can do at most.

    OCTAVO_ISA=avx2 python -m benchmarks.kernels [--threads N]

The limits, reading from memory and multiply-adds on registers, are measured first, with the same threads and
instructions. Weights and caches are so many that they do not fit into a cache of `COLD_BYTES`; one as large as some
servers have may still hold them, and then a share of reading exceeds 1.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks import record
from octavo.backends.native.arrays import float_array
from octavo.backends.native.isa import load_extension
from octavo.backends.native.kv_cache import NativeKVCache
from octavo.backends.native.operations import NativeOps
from octavo.backends.native.weight_kinds import KINDS
from octavo.backends.ops import AttentionParams, KVShape, StepBatch

COLD_BYTES = 256 * 2**20
LINEAR_SHAPES = [(576, 960), (576, 3072), (1536, 576), (576, 49152)]  # SmolLM2-135M: inputs, outputs
ROWS = [1, 16, 64, 512]
HEADS, KV_HEADS, HEAD_DIM = 9, 3, 64


def fastest_s(run: Callable[[int], Any], num_turns: int, min_s: float = 0.3) -> float:
    """Seconds of the fastest call of `run(turn)`, turn after turn: other work on the machine can only slow one down."""
    fastest, end_s = float("inf"), time.perf_counter() + min_s
    while time.perf_counter() < end_s or fastest == float("inf"):
        for turn in range(num_turns):
            begin_s = time.perf_counter()
            run(turn)
            fastest = min(fastest, time.perf_counter() - begin_s)
    return fastest


class KernelBenchmark:
    """The kernels of one build, on a pool of its own."""

    def __init__(self, num_threads: int) -> None:
        self._extension = load_extension()
        self._pool = self._extension.ThreadPool(num_threads)
        self._ops = NativeOps(self._extension, self._pool)
        self._rng = np.random.default_rng(0)
        num_flops = self._extension.run_multiply_adds(self._pool, 100_000)
        self._peak_flops = num_flops / fastest_s(lambda _: self._extension.run_multiply_adds(self._pool, 100_000), 1)
        large = np.ones(COLD_BYTES // 4, np.float32)
        self._peak_bytes = large.nbytes / fastest_s(lambda _: self._extension.read_floats(self._pool, large), 1)

    def limits(self) -> dict[str, Any]:
        """The yardsticks."""
        return {"kernel": "limits", "gflops": self._peak_flops / 1e9, "gb_per_s": self._peak_bytes / 1e9}

    def linear(self, kind: str, num_inputs: int, num_outputs: int, num_rows: int) -> dict[str, Any]:
        """x @ W.T with weights of this kind that come from memory."""
        tensor = self._rng.standard_normal((num_outputs, num_inputs), np.float32)
        part = ("F32", tensor.view(np.uint8), num_inputs, None)
        weights = [self._extension.LinearWeight.pack(self._pool, kind, [part], None)]
        num_bytes = weights[0].num_bytes
        num_weights = max(1, COLD_BYTES // num_bytes) if num_rows < 64 else 2
        for _ in range(num_weights - 1):
            weights.append(self._extension.LinearWeight.pack(self._pool, kind, [part], None))
        x = self._rng.standard_normal((num_rows, num_inputs), np.float32)
        seconds = fastest_s(lambda turn: self._ops.linear(x, weights[turn]), num_weights)
        num_flops = 2 * num_rows * num_inputs * num_outputs
        what = {"kernel": "linear", "kind": kind, "inputs": num_inputs, "outputs": num_outputs, "rows": num_rows}
        return what | self._speed(seconds, num_bytes, num_flops)

    def attention(self, name: str, query_lens: Sequence[int], seq_len: int, dtype: str) -> dict[str, Any]:
        """One layer's attention: each sequence has `seq_len` tokens, of which the last `query_lens[i]` are new."""
        num_reqs, blocks = len(query_lens), seq_len // 16
        head_bytes = {"float32": 4 * HEAD_DIM, "bfloat16": 2 * HEAD_DIM, "int8": HEAD_DIM + 4}[dtype]
        cache_bytes = 2 * num_reqs * blocks * 16 * KV_HEADS * head_bytes
        shape = KVShape(max(1, COLD_BYTES // cache_bytes), num_reqs * blocks, 16, KV_HEADS, HEAD_DIM, dtype)
        layers = NativeKVCache(self._extension, self._pool, shape).layers
        slots = np.arange(shape.num_blocks * 16, dtype=np.int32)
        kv = self._rng.standard_normal((len(slots), KV_HEADS * HEAD_DIM), np.float32)
        for layer in layers:
            self._ops.write_kv(kv, kv, layer, slots)
        batch = StepBatch(
            input_ids=np.zeros(sum(query_lens), np.int32),
            positions=np.concatenate([np.arange(seq_len - n, seq_len) for n in query_lens]).astype(np.int32),
            slot_mapping=np.zeros(sum(query_lens), np.int32),
            query_start_loc=np.cumsum([0, *query_lens]).astype(np.int32),
            seq_lens=np.full(num_reqs, seq_len, np.int32),
            block_table=self._rng.permutation(shape.num_blocks).astype(np.int32).reshape(num_reqs, blocks),
            logits_rows=np.zeros(0, np.int32),
        )
        q = float_array(self._rng.standard_normal((sum(query_lens), HEADS * HEAD_DIM)))
        params = AttentionParams(HEAD_DIM**-0.5)
        seconds = fastest_s(lambda turn: self._ops.attend(q, layers[turn], batch, params), len(layers))
        num_flops = int(4 * HEADS * HEAD_DIM * (batch.positions.astype(np.int64) + 1).sum())
        what = {"kernel": "attention", "case": name, "kv_cache_dtype": dtype, "num_reqs": num_reqs, "seq_len": seq_len}
        return what | self._speed(seconds, cache_bytes, num_flops)

    def _speed(self, seconds: float, num_bytes: int, num_flops: int) -> dict[str, Any]:
        return {
            "us": seconds * 1e6,
            "gb_per_s": num_bytes / seconds / 1e9,
            "share_of_read": num_bytes / seconds / self._peak_bytes,
            "gflops": num_flops / seconds / 1e9,
            "share_of_fma": num_flops / seconds / self._peak_flops,
        }


def measure(num_threads: int) -> Iterator[dict[str, Any]]:
    """Each result, as it comes."""
    benchmark = KernelBenchmark(num_threads)
    yield benchmark.limits()
    for kind, (num_inputs, num_outputs), num_rows in itertools.product(KINDS, LINEAR_SHAPES, ROWS):
        yield benchmark.linear(kind, num_inputs, num_outputs, num_rows)
    for dtype in ("float32", "bfloat16", "int8"):
        for num_reqs, seq_len in [(1, 1024), (1, 8192), (16, 1024), (64, 256)]:
            yield benchmark.attention("decode", [1] * num_reqs, seq_len, dtype)
        yield benchmark.attention("prompt", [512], 512, dtype)
        yield benchmark.attention("chunk", [512], 2048, dtype)


def main() -> None:
    """Print one JSON line a result."""
    parser = argparse.ArgumentParser(description="Measure the native kernels alone.")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    num_threads = parser.parse_args().threads
    about = record.machine() | {"commit": record.commit(), "isa": load_extension().isa, "num_threads": num_threads}
    for result in measure(num_threads):
        rounded = {key: round(value, 3) if isinstance(value, float) else value for key, value in result.items()}
        print(json.dumps(rounded | about), flush=True)


if __name__ == "__main__":
    main()
