"""Totals: what a scheduler has counted since it began."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Totals:
    """Counts that only grow."""

    num_preemptions: int = 0
    num_prefix_queries: int = 0  # tokens looked up in the prefix cache
    num_prefix_hits: int = 0  # tokens found there
