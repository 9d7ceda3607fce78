"""Measures OpenVINO GenAI in this process: see benchmarks.measurement for the command line.

    .peers/openvino/bin/python -m benchmarks.peers.run_openvino --model FOLDER_OR_GGUF --case mixed

Its continuous batching pipeline with all requests of the case in one batch, its default precision and no prefix cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import openvino
import openvino_genai

from benchmarks import measurement
from benchmarks.measurement import MeasuredEngine, Settings
from benchmarks.workload import BenchmarkRequest

BLOCK_SIZE = 32  # tokens of a KV block on a CPU
MAX_BATCH_TOKENS = 512


@contextmanager
def open_engine(settings: Settings) -> Iterator[MeasuredEngine]:
    """A pipeline that holds all requests of the case at once."""
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.max_num_seqs = settings.case.num_requests
    scheduler.max_num_batched_tokens = MAX_BATCH_TOKENS
    scheduler.num_kv_blocks = num_kv_blocks(settings)
    scheduler.enable_prefix_caching = False
    pipeline = openvino_genai.ContinuousBatchingPipeline(
        settings.model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": settings.num_threads}
    )

    def generate(requests: Sequence[BenchmarkRequest]) -> list[int]:
        prompts = [openvino.Tensor(np.array([request.prompt_token_ids], dtype=np.int64)) for request in requests]
        results = pipeline.generate(prompts, [generation_config(request) for request in requests])
        return [len(result.m_generation_ids[0]) for result in results]

    yield MeasuredEngine("openvino-genai", openvino_genai.__version__, generate)


def num_kv_blocks(settings: Settings) -> int:
    """Blocks for all requests of the case, the last one of each only partly filled."""
    case = settings.case
    return (case.num_prompt_tokens + case.num_output_tokens) // BLOCK_SIZE + case.num_requests + 1


def generation_config(request: BenchmarkRequest) -> openvino_genai.GenerationConfig:
    """Greedy, to the given length."""
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = request.num_output_tokens
    config.ignore_eos = True
    config.do_sample = False
    return config


if __name__ == "__main__":
    measurement.run(open_engine)
