"""Measures what continuous batching and a paged KV cache gain over what was before them: one JSON line each.

    python -m benchmarks.naive_serving --model MODEL.gguf [--requests 120] [--rate 12] [--cost cost.json]
                                       [--trace FILE --trace-speed N]

The same bursty load on the real engine in four ways. Static batching fills the engine and waits until all of the batch
have ended; a contiguous cache reserves the longest sequence for everyone. The KV cache is as large in all four, and so
small that it decides how many run. Both naive ways are kinder than the servers of their time were: no step computes
rows that have ended, no prompt is padded, and no memory is lost between two places.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks import record
from octavo.bench.lengths import Lengths
from octavo.bench.report import summarize
from octavo.bench.traces import read_trace
from octavo.bench.workload import RandomWorkload, TraceWorkload, Workload
from octavo.config import EngineConfig
from octavo.engine.build import BuiltEngine, build_engine
from octavo.engine.memory import num_blocks_for
from octavo.planning.prediction import ONE_TOKEN_A_WORD, engine_requests, outcomes, predict
from octavo.planning.step_costs import read_cost_model
from octavo.sim.batching import BatchingPolicy, ContinuousBatching, StaticBatching
from octavo.sim.clock import WallClock
from octavo.sim.engine_settings import EngineSettings
from octavo.sim.replay import Replay
from octavo.weights.checkpoint import open_checkpoint

KV_CACHE_DTYPE = "bfloat16"
MAX_MODEL_LEN = 1024
MAX_NUM_SEQS = 32
NUM_PLACES = 8  # sequences of full length that the KV cache holds
NUM_BLOCKS = NUM_PLACES * num_blocks_for(MAX_MODEL_LEN)
BURSTINESS = 0.25
INPUT_LEN, OUTPUT_LEN = Lengths.parse("lognormal:160,0.7"), Lengths.parse("lognormal:64,0.6")
POLICIES: dict[str, BatchingPolicy] = {"static": StaticBatching(MAX_NUM_SEQS), "continuous": ContinuousBatching()}
SETTINGS = {
    kv: EngineSettings(
        NUM_BLOCKS,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=512,
        max_model_len=MAX_MODEL_LEN,
        is_contiguous=kv == "contiguous",
    )
    for kv in ("contiguous", "paged")
}
MAX_INPUT_LEN, MAX_OUTPUT_LEN = 640, 256  # the requests are cut to these


def main() -> None:
    """Measure the four ways, the most naive first."""
    parser = argparse.ArgumentParser(description="Measure naive serving beside continuous batching and paging.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--rate", type=float, default=12.0, help="requests a second, in bursts")
    parser.add_argument("--trace", type=Path, help="an Azure CSV or a Mooncake JSONL trace instead")
    parser.add_argument("--trace-speed", type=float, default=1.0)
    parser.add_argument("--cost", type=Path, help="what steps cost: says what the simulator makes of each way")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    about = record.machine() | {"commit": record.commit(), "model": arguments.model.name}
    load = workload(arguments)
    naive_tokens_per_s = 0.0
    for policy, kv in product(POLICIES, SETTINGS):
        with running(arguments, kv) as engine:
            figures = measure(engine, load, POLICIES[policy])
        if arguments.cost is not None:
            predicted = predict(load, SETTINGS[kv], read_cost_model(arguments.cost), batching=POLICIES[policy])
            figures["predicted_output_tokens_per_s"] = predicted.report.output_tokens_per_s
        naive_tokens_per_s = naive_tokens_per_s or figures["output_tokens_per_s"]
        gain = {"gain": round(figures["output_tokens_per_s"] / naive_tokens_per_s, 2)}
        print(json.dumps({"policy": policy, "kv": kv} | gain | figures | about), flush=True)


def workload(arguments: argparse.Namespace) -> Workload:
    """The load, the same for each way, cut to what a place of the contiguous cache holds."""
    drawn = RandomWorkload(
        arguments.requests, INPUT_LEN, OUTPUT_LEN, request_rate=arguments.rate, burstiness=BURSTINESS
    )
    trace = drawn.shapes() if arguments.trace is None else read_trace(arguments.trace, arguments.requests)
    return TraceWorkload(trace, arguments.trace_speed, MAX_INPUT_LEN, MAX_OUTPUT_LEN)


@contextmanager
def running(arguments: argparse.Namespace, kv: str) -> Iterator[BuiltEngine]:
    """An engine whose KV cache is kept in the way of that name."""
    checkpoint = open_checkpoint(arguments.model)
    config = EngineConfig(
        str(arguments.model),
        kv_cache_dtype=KV_CACHE_DTYPE,
        kv_cache_memory_bytes=NUM_BLOCKS * checkpoint.config.block_bytes(KV_CACHE_DTYPE),
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=MAX_NUM_SEQS,
        num_threads=arguments.threads,
    )
    engine = build_engine(config, checkpoint)
    if kv == "contiguous":
        engine.core.scheduler.kv = SETTINGS[kv].build_scheduler().kv
    try:
        yield engine
    finally:
        engine.core.close()
        engine.grammars.close()


def measure(engine: BuiltEngine, load: Workload, batching: BatchingPolicy) -> dict[str, Any]:
    """Serve the load, each request when it comes, by the clock on the wall."""
    requests = engine_requests(load.requests(ONE_TOKEN_A_WORD), first_token_id=engine.vocab_size // 2)
    first = dataclasses.replace(requests[0], arrival_s=0.0)
    Replay(engine.core, WallClock(), max_num_seqs=MAX_NUM_SEQS).run([first])  # so that the engine is warm
    replay = Replay(engine.core, WallClock(), max_num_seqs=MAX_NUM_SEQS, batching=batching).run(requests)
    shares = {"slots_used": round(replay.utilization, 3), "kv_unused": round(replay.kv_waste, 3)}
    return shares | summarize(outcomes(requests, replay)).to_json()


if __name__ == "__main__":
    main()
