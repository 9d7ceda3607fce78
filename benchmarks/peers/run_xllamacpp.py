"""Measures llama.cpp as PyPI has it prebuilt, in this process: see benchmarks.measurement for the command line.

    .peers/xllamacpp/bin/python -m benchmarks.peers.run_xllamacpp --model MODEL.gguf --case mixed

The `xllamacpp` wheel runs on any x86-64 with AVX2; `run_llama_cpp` is the build for this machine. Same settings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version

import xllamacpp

from benchmarks import measurement
from benchmarks.measurement import MeasuredEngine, Settings
from benchmarks.peers.run_llama_cpp import MAX_BATCH_TOKENS, num_kv_tokens, num_slots
from benchmarks.workload import BenchmarkRequest


@contextmanager
def open_engine(settings: Settings) -> Iterator[MeasuredEngine]:
    """A server object with slots for the requests of the case."""
    server = xllamacpp.Server(server_params(settings))
    with ThreadPoolExecutor(settings.case.num_requests) as pool:

        def generate(requests: Sequence[BenchmarkRequest]) -> list[int]:
            return list(pool.map(lambda request: complete(server, request), requests))

        yield MeasuredEngine("xllamacpp", version("xllamacpp"), generate)


def server_params(settings: Settings) -> xllamacpp.CommonParams:
    """The parameters of a server for this case."""
    params = xllamacpp.CommonParams()
    params.model.path = str(settings.model)
    params.cpuparams.n_threads = settings.num_threads
    params.cpuparams_batch.n_threads = settings.num_threads
    params.n_parallel = num_slots(settings)
    params.n_ctx = num_kv_tokens(settings)
    params.n_ubatch = MAX_BATCH_TOKENS
    params.kv_unified = False
    params.cache_ram_mib = 0
    params.verbosity = 0
    return params


def complete(server: xllamacpp.Server, request: BenchmarkRequest) -> int:
    """Run one request to its end; the number of tokens that it got."""
    answer = server.handle_completions(
        {
            "prompt": request.prompt_token_ids,
            "max_tokens": request.num_output_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "cache_prompt": False,
        }
    )
    answer = json.loads(answer) if isinstance(answer, str) else answer
    return int(answer["usage"]["completion_tokens"])


if __name__ == "__main__":
    measurement.run(open_engine)
