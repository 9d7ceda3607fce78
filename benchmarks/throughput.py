"""Measures octavo offline, in this process: one JSON line with speed, memory, time to ready, machine and commit.

    python -m benchmarks.throughput --model MODEL.gguf --case single|prefill|mixed [--threads N] [--runs N]

`benchmarks.peers.compare` runs it in turn with other engines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version

from benchmarks import measurement
from benchmarks.measurement import MeasuredEngine, Settings
from benchmarks.workload import BenchmarkRequest
from octavo import LLM, SamplingParams


@contextmanager
def open_engine(settings: Settings) -> Iterator[MeasuredEngine]:
    """An LLM that holds all requests of the case at once."""
    with LLM(
        str(settings.model),
        max_model_len=settings.case.max_request_len,
        max_num_seqs=settings.case.num_requests,
        num_threads=settings.num_threads,
    ) as llm:

        def generate(requests: Sequence[BenchmarkRequest]) -> list[int]:
            params = [
                SamplingParams(temperature=0, max_tokens=request.num_output_tokens, ignore_eos=True)
                for request in requests
            ]
            outputs = llm.generate([request.prompt_token_ids for request in requests], params, use_tqdm=False)
            return [len(output.outputs[0].token_ids) for output in outputs]

        yield MeasuredEngine("octavo", version("octavo"), generate)


if __name__ == "__main__":
    measurement.run(open_engine)
