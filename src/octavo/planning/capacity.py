"""How many requests a KV cache holds at once, when they are as long as those of a workload."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from octavo.bench.traces import TracedRequest
from octavo.config import BLOCK_SIZE

NINETY_NINE_PERCENT = 2.326  # standard deviations above the mean below which a normal variable stays so often
SPARE_BLOCKS = 1  # a running request that the scheduler leaves free before it admits another


class BlocksHeld(NamedTuple):
    """KV blocks that a running request holds at a random moment."""

    mean: float
    variance: float

    @classmethod
    def by(cls, requests: Sequence[TracedRequest]) -> BlocksHeld:
        """Those of a mixture of such requests.

        A request runs for about as many steps as it has output tokens, in which it grows from its prompt to its full
        length by a token each: whoever looks at a random moment sees the long ones more often, and each of them at any
        of its lengths.
        """
        total = first = second = 0.0
        for request in requests:
            num_steps = request.num_output_tokens
            mean = (request.num_prompt_tokens + (num_steps - 1) / 2) / BLOCK_SIZE
            mean += (BLOCK_SIZE - 1) / 2 / BLOCK_SIZE  # the last block is half empty
            variance = (num_steps**2 - 1) / 12 / BLOCK_SIZE**2
            total += num_steps
            first += num_steps * mean
            second += num_steps * (mean**2 + variance)
        return cls(first / total, second / total - (first / total) ** 2)

    def num_requests(self, num_blocks: int) -> int:
        """How many fit into so many blocks in 99 of 100 moments.

        The blocks of n independent requests are about normal: mean n x mean, variance n x variance.
        """
        mean, spread = self.mean + SPARE_BLOCKS, NINETY_NINE_PERCENT * math.sqrt(self.variance)
        root = (math.sqrt(spread**2 + 4 * mean * num_blocks) - spread) / (2 * mean)
        return math.floor(root**2)
