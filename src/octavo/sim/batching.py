"""When requests that have arrived are handed to the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from octavo.core.scheduler import Scheduler


class BatchingPolicy(Protocol):
    """Decides before each step."""

    def num_to_add(self, num_arrived: int, scheduler: Scheduler) -> int:
        """How many of those that have arrived to hand over before the next step."""
        ...


class ContinuousBatching:
    """At once: the scheduler decides anew at every step."""

    def num_to_add(self, num_arrived: int, scheduler: Scheduler) -> int:
        """All of them."""
        return num_arrived


@dataclass(frozen=True, slots=True)
class StaticBatching:
    """A batch at a time, and the next one only when all of it has ended: how servers worked before Orca (2022)."""

    batch_size: int

    def num_to_add(self, num_arrived: int, scheduler: Scheduler) -> int:
        """A batch for an empty engine, else nothing."""
        return 0 if scheduler.has_unfinished else min(num_arrived, self.batch_size)
