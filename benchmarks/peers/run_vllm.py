"""Measures vLLM on the CPU, in this process: see benchmarks.measurement for the command line.

    .peers/vllm/bin/python -m benchmarks.peers.run_vllm --model FOLDER --case mixed

Its engine core runs in this process, too, so that ready time and memory are those of all of it. Every request of a case
may run at once, and no prefix is cached. It compiles the model at its start, which took 100 s on two CPUs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks import measurement
from benchmarks.measurement import MeasuredEngine, Settings
from benchmarks.workload import BenchmarkRequest

KV_CACHE_GIB = 1


@contextmanager
def open_engine(settings: Settings) -> Iterator[MeasuredEngine]:
    """The model in the precision that its folder names."""
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": str(KV_CACHE_GIB),
        "OMP_NUM_THREADS": str(settings.num_threads),
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{settings.num_threads - 1}",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "HF_HUB_OFFLINE": "1",
    }
    import vllm  # not above: it reads the environment

    llm = vllm.LLM(
        str(settings.model),
        max_model_len=settings.case.max_request_len,
        max_num_seqs=settings.case.num_requests,
        enable_prefix_caching=False,
        disable_log_stats=True,
    )

    def generate(requests: Sequence[BenchmarkRequest]) -> list[int]:
        outputs = llm.generate(
            [{"prompt_token_ids": request.prompt_token_ids} for request in requests],
            [
                vllm.SamplingParams(temperature=0, max_tokens=request.num_output_tokens, ignore_eos=True)
                for request in requests
            ],
            use_tqdm=False,
        )
        return [len(output.outputs[0].token_ids) for output in outputs]

    yield MeasuredEngine("vLLM", vllm.__version__, generate)


if __name__ == "__main__":
    measurement.run(open_engine)
