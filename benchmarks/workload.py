"""What is measured: the same requests for every engine, as token ids, so that no tokenizer takes part.

    single    one request of 128 prompt tokens and 128 output tokens
    prefill   one request of 512 prompt tokens and one output token
    mixed     64 requests of many lengths, all there at once: 8,841 prompt and 5,719 output tokens

The lengths are fixed. The token ids are random and depend on `run`, so that no prefix cache answers a repeated run.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass

LENGTHS_SEED = 20250711
MIN_TOKEN_ID = 100  # below are special tokens and single bytes
MAX_TOKEN_ID = 48_999  # below the vocabulary of every model that is measured


@dataclass(frozen=True, slots=True)
class BenchmarkRequest:
    """A prompt, and how many tokens to generate greedily, whatever they are."""

    prompt_token_ids: list[int]
    num_output_tokens: int


@dataclass(frozen=True, slots=True)
class Case:
    """The lengths of requests that are sent together."""

    name: str
    prompt_lens: tuple[int, ...]
    output_lens: tuple[int, ...]

    @property
    def num_requests(self) -> int:
        """How many requests are sent together."""
        return len(self.prompt_lens)

    @property
    def num_prompt_tokens(self) -> int:
        """Of all requests."""
        return sum(self.prompt_lens)

    @property
    def num_output_tokens(self) -> int:
        """Of all requests."""
        return sum(self.output_lens)

    @property
    def max_request_len(self) -> int:
        """Tokens of prompt and output of the longest request."""
        return max(prompt + output for prompt, output in zip(self.prompt_lens, self.output_lens, strict=True))

    def requests(self, run: int) -> list[BenchmarkRequest]:
        """The requests of the `run`-th measurement: always these lengths, each time other token ids."""
        rng = random.Random(run)
        return [
            BenchmarkRequest(_random_token_ids(rng, prompt_len), output_len)
            for prompt_len, output_len in zip(self.prompt_lens, self.output_lens, strict=True)
        ]


def _random_token_ids(rng: random.Random, num_tokens: int) -> list[int]:
    span = MAX_TOKEN_ID - MIN_TOKEN_ID + 1
    return [MIN_TOKEN_ID + int(rng.random() * span) for _ in range(num_tokens)]


def _lengths(rng: random.Random, num_requests: int, total: int, spread: float) -> tuple[int, ...]:
    """Log-uniform lengths, the longest about `spread` times the shortest, scaled to sum up to `total`."""
    weights = [math.exp(rng.random() * math.log(spread)) for _ in range(num_requests)]
    scale = total / sum(weights)
    ends, position = [0], 0.0
    for weight in weights:
        position += weight * scale
        ends.append(round(position))
    return tuple(end - start for start, end in itertools.pairwise(ends))


def _mixed() -> Case:
    rng = random.Random(LENGTHS_SEED)
    prompt_lens = _lengths(rng, num_requests=64, total=8_841, spread=32)
    return Case("mixed", prompt_lens, _lengths(rng, num_requests=64, total=5_719, spread=16))


CASE_BY_NAME = {case.name: case for case in (Case("single", (128,), (128,)), Case("prefill", (512,), (1,)), _mixed())}
