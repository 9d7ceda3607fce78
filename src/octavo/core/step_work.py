"""StepWork: what there is to do in a step, in the numbers that its time depends on."""

from __future__ import annotations

from typing import NamedTuple

from octavo.core.messages import SchedulerOutput


class StepWork(NamedTuple):
    """Sums over the rows of a step."""

    num_tokens: int  # to compute
    num_sampled: int  # rows that get logits and a token
    num_pairs: int  # of a token to compute and one that it attends to, itself included

    @classmethod
    def of(cls, scheduled: SchedulerOutput) -> StepWork:
        """The work of a step."""
        num_sampled = num_pairs = 0
        for row in scheduled.scheduled:
            num_new = row.num_scheduled_tokens
            num_sampled += row.is_sampled
            num_pairs += num_new * row.num_computed_tokens + num_new * (num_new + 1) // 2
        return cls(scheduled.num_tokens, num_sampled, num_pairs)
