"""Clocks: what a replay waits by. Call one to read it, in seconds."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A time that begins at 0."""

    def __call__(self) -> float:
        """The time in seconds."""
        ...

    def advance_to(self, time_s: float) -> None:
        """Let time pass until then."""
        ...


class VirtualClock:
    """Time that passes only when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """The time in seconds."""
        return self.now_s

    def advance_to(self, time_s: float) -> None:
        """Set the time, unless it is later already."""
        self.now_s = max(self.now_s, time_s)


class WallClock:
    """Time as it is, from when this was made."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()

    def __call__(self) -> float:
        """The time in seconds."""
        return time.monotonic() - self._started_s

    def advance_to(self, time_s: float) -> None:
        """Sleep until then."""
        time.sleep(max(0.0, time_s - self()))
