"""CostModel: how long a step takes, as a line."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.core.messages import SchedulerOutput


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds of a step: a fixed part, a part for each token computed, a part for each token attended to."""

    fixed_s: float = 0.005  # weights are read once, however many rows there are
    token_s: float = 0.0002
    context_token_s: float = 0.0000002  # KV that a row reads, whatever the number of its queries

    def step_s(self, scheduled: SchedulerOutput) -> float:
        """Seconds the step takes."""
        num_context_tokens = sum(row.num_computed_tokens + row.num_scheduled_tokens for row in scheduled.scheduled)
        return self.fixed_s + self.token_s * scheduled.num_tokens + self.context_token_s * num_context_tokens
