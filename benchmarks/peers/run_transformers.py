"""Measures Hugging Face transformers in this process: see benchmarks.measurement for the command line.

    .peers/transformers/bin/python -m benchmarks.peers.run_transformers --model FOLDER --case mixed

`generate` has no continuous batching on a CPU: requests run in left-padded batches of the most alike output lengths,
each batch until its longest output is done; what a request got beyond what it asked for does not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import transformers

from benchmarks import measurement
from benchmarks.measurement import MeasuredEngine, Settings
from benchmarks.workload import BenchmarkRequest

BATCH_SIZE = 16
PAD_TOKEN_ID = 0


@contextmanager
def open_engine(settings: Settings) -> Iterator[MeasuredEngine]:
    """The model in the precision that its folder names."""
    torch.set_num_threads(settings.num_threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(settings.model, dtype="auto")
    model.generation_config.eos_token_id = None

    def generate(requests: Sequence[BenchmarkRequest]) -> list[int]:
        output_lens = [0] * len(requests)
        order = sorted(range(len(requests)), key=lambda i: requests[i].num_output_tokens)
        for start in range(0, len(order), BATCH_SIZE):
            batch = order[start : start + BATCH_SIZE]
            num_new_tokens = generate_batch(model, [requests[i] for i in batch])
            for i in batch:
                output_lens[i] = min(num_new_tokens, requests[i].num_output_tokens)
        return output_lens

    yield MeasuredEngine("transformers", transformers.__version__, generate)


def generate_batch(model: Any, requests: list[BenchmarkRequest]) -> int:
    """Run `requests` as one padded batch; the number of tokens that each of them got."""
    max_prompt_len = max(len(request.prompt_token_ids) for request in requests)
    input_ids = torch.full((len(requests), max_prompt_len), PAD_TOKEN_ID)
    attention_mask = torch.zeros_like(input_ids)
    for row, request in enumerate(requests):
        prompt_len = len(request.prompt_token_ids)
        input_ids[row, max_prompt_len - prompt_len :] = torch.tensor(request.prompt_token_ids)
        attention_mask[row, max_prompt_len - prompt_len :] = 1
    output_ids = model.generate(
        input_ids,
        attention_mask=attention_mask,
        max_new_tokens=max(request.num_output_tokens for request in requests),
        do_sample=False,
        pad_token_id=PAD_TOKEN_ID,
    )
    return int(output_ids.shape[1]) - max_prompt_len


if __name__ == "__main__":
    measurement.run(open_engine)
