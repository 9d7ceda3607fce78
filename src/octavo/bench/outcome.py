"""Outcome: what became of one request, by the client's clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

REFUSAL = "refused by a server that has too much to do"  # its own words count what waits, and differ each time


@dataclass(slots=True)
class Outcome:
    """Times are in seconds from the start of the load. One that failed has an `error` and no place in latencies."""

    sent_s: float
    ended_s: float = 0.0
    chunk_s: list[float] = field(default_factory=list)  # when each piece of text arrived
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    error: str = ""
    is_refused: bool = False  # at once, and told when to come back

    @property
    def ttft_s(self) -> float:
        """Time to first token."""
        return self.chunk_s[0] - self.sent_s

    @property
    def e2el_s(self) -> float:
        """End-to-end latency: up to the last piece of text."""
        return self.chunk_s[-1] - self.sent_s

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None where there is only one."""
        if self.num_output_tokens < 2:
            return None
        return (self.e2el_s - self.ttft_s) / (self.num_output_tokens - 1)

    @property
    def itl_s(self) -> list[float]:
        """Inter-token latencies: the gaps between pieces of text, each of which may hold several tokens."""
        return [later - earlier for earlier, later in pairwise(self.chunk_s)]
