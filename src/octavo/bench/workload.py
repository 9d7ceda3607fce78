"""What is sent to a server, and when: made from distributions or from a trace. The same seed gives the same."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from octavo.bench.arrivals import arrival_times
from octavo.bench.lengths import Lengths
from octavo.bench.prompts import TokenLine, prompt_with_prefix, random_text
from octavo.bench.traces import MOONCAKE_BLOCK_TOKENS, TracedRequest


class LoadRequest(NamedTuple):
    """One request of a load."""

    arrival_s: float  # from the start
    prompt: str
    num_output_tokens: int


@dataclass(frozen=True, slots=True)
class RandomWorkload:
    """Requests of random words. Every `num_prefixes`-th one begins with the same `prefix_len` tokens."""

    num_requests: int
    input_len: Lengths
    output_len: Lengths
    prefix_len: int = 0
    num_prefixes: int = 1
    request_rate: float = float("inf")  # a second
    burstiness: float = 1.0
    seed: int = 0

    def shapes(self) -> list[TracedRequest]:
        """When the requests come and how long they are, in tokens, whatever the tokens are."""
        rng = random.Random(self.seed)
        arrivals = arrival_times(self.num_requests, request_rate=self.request_rate, burstiness=self.burstiness, rng=rng)
        return [
            TracedRequest(arrival_s, self.input_len.sample(rng), self.output_len.sample(rng)) for arrival_s in arrivals
        ]

    def requests(self, line: TokenLine) -> list[LoadRequest]:
        """The requests, with prompts for a server that counts tokens like `line`."""
        rng = random.Random(f"{self.seed} words")
        prefix_words = line.num_words(self.prefix_len) if self.prefix_len else 0
        prefixes = [random_text(prefix_words, rng) for _ in range(self.num_prefixes)]
        return [
            LoadRequest(
                shape.arrival_s,
                prompt_with_prefix(prefixes[index % len(prefixes)], line.num_words(shape.num_prompt_tokens), rng),
                shape.num_output_tokens,
            )
            for index, shape in enumerate(self.shapes())
        ]


@dataclass(frozen=True, slots=True)
class TraceWorkload:
    """The requests of a trace, `speed` times as fast, cut to lengths that the server can take."""

    trace: Sequence[TracedRequest]
    speed: float = 1.0
    max_input_len: int | None = None
    max_output_len: int | None = None
    seed: int = 0

    def shapes(self) -> list[TracedRequest]:
        """When the requests come and how long they are, in tokens."""
        return [
            TracedRequest(
                traced.arrival_s / self.speed,
                min(traced.num_prompt_tokens, self.max_input_len or traced.num_prompt_tokens),
                max(1, min(traced.num_output_tokens, self.max_output_len or traced.num_output_tokens)),
                traced.prefix_block_ids,
            )
            for traced in self.trace
        ]

    def requests(self, line: TokenLine) -> list[LoadRequest]:
        """The requests, with prompts for a server that counts tokens like `line`."""
        rng = random.Random(self.seed)
        block_words = max(1, round(MOONCAKE_BLOCK_TOKENS / line.tokens_per_word))

        @cache
        def block_text(block_id: int) -> str:
            return random_text(block_words, random.Random(f"{self.seed} {block_id}"))

        requests = []
        for shape in self.shapes():
            num_words = line.num_words(shape.num_prompt_tokens)
            shared = " ".join(block_text(block_id) for block_id in shape.prefix_block_ids).split()
            prompt = " ".join(shared[:num_words]) or random_text(num_words, rng)
            requests.append(LoadRequest(shape.arrival_s, prompt, shape.num_output_tokens))
        return requests


Workload = RandomWorkload | TraceWorkload
