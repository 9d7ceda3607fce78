"""What a ledger run must have come upon. A test of situations that never arise proves nothing."""

from __future__ import annotations

from collections import Counter

# Smallest share of the seeds in which each situation has to be reached, about a third of what 200 steps a seed reach.
REQUIRED_SHARE = {
    "abort decoding": 0.15,
    "abort forking": 0.12,
    "abort mid-chunk": 0.06,
    "abort of one choice": 0.18,
    "abort preempted": 0.02,
    "abort waiting": 0.15,
    "block copied": 0.3,
    "cached block evicted": 0.3,
    "chunk split": 0.25,
    "copy is copied on": 0.002,
    "draft accepted": 0.2,
    "draft rejected at position 0": 0.2,
    "draft rejected at position 1": 0.1,
    "draft rejected at position 2": 0.08,
    "draft rejected at position 3": 0.04,
    "draft rejected at position 4": 0.01,
    "drafts cut short": 0.1,
    "drafts rolled back over a block border": 0.15,
    "duplicate block re-pointed": 0.2,
    "fork": 0.4,
    "fork of a half-filled block": 0.3,
    "key collision": 0.04,
    "never fits": 0.2,
    "partial prefix hit": 0.25,
    "pool at 100%": 0.2,
    "preempted mid-chunk": 0.03,
    "preempted once": 0.2,
    "preempted three times": 0.01,
    "preempted with drafts": 0.1,
    "prefix hit": 0.3,
    "prefix hit after a preemption": 0.15,
    "prefix hit in spite of collisions": 0.04,
    "prompt scored": 0.2,
    "prompt scored anew": 0.004,
    "row failed": 0.05,
    "rows freed and given away in one step": 0.3,
    "timeout in the queue": 0.1,
    "timeout running": 0.1,
    "timeout waiting": 0.1,
    "whole prompt cached": 0.25,
}


class Coverage:
    """How often each situation was reached, and in how many seeds."""

    def __init__(self) -> None:
        self.num_seeds = 0
        self._times: Counter[str] = Counter()
        self._seeds: Counter[str] = Counter()

    def add(self, times: Counter[str]) -> None:
        """Take in one seed."""
        self.num_seeds += 1
        self._times += times
        self._seeds.update(situation for situation, count in times.items() if count)

    def num_required(self, situation: str) -> int:
        """Seeds in which the situation has to be reached, of the seeds so far."""
        return int(REQUIRED_SHARE[situation] * self.num_seeds)

    def missing(self) -> list[str]:
        """The situations that too few seeds reached."""
        return [name for name in REQUIRED_SHARE if self._seeds[name] < self.num_required(name)]

    def __str__(self) -> str:
        lines = [f"{'situation':40} {'times':>8} {'seeds':>6} {'required':>8}"]
        for name in REQUIRED_SHARE:
            lines.append(f"{name:40} {self._times[name]:8} {self._seeds[name]:6} {self.num_required(name):8}")
        return "\n".join(lines)
