"""Totals: what a scheduler has counted since it began."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Totals:
    """Counts that only grow."""

    num_preemptions: int = 0
    num_prefix_queries: int = 0  # tokens looked up in the prefix cache
    num_prefix_hits: int = 0  # tokens found there
    num_drafts: int = 0  # runs of drafts that were verified
    num_draft_tokens: int = 0  # in these
    num_accepted_by_position: list[int] = field(default_factory=list)  # how often the i-th draft of a run was right

    def count_drafts(self, num_drafts: int, num_accepted: int) -> None:
        """Count a run of verified drafts."""
        self.num_drafts += 1
        self.num_draft_tokens += num_drafts
        positions = self.num_accepted_by_position
        positions += [0] * (num_drafts - len(positions))
        for position in range(num_accepted):
            positions[position] += 1
