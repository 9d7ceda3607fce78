"""Resident memory of a server, its engine and what checks grammars for that, over time."""

from __future__ import annotations

import time
from collections.abc import Sequence

from benchmarks.record import rss_bytes
from tests.e2e.server_process import children_of

MEGABYTE = 1e6


class ResidentMemory:
    """Samples of a process, its children and theirs, all together; what these fork lives too short to count."""

    def __init__(self, process_id: int) -> None:
        self._process_id = process_id
        self._started_s = time.monotonic()
        self._samples: list[tuple[float, float]] = []  # (seconds since the start, megabytes)

    def sample(self) -> float:
        """Take a sample; return it, in megabytes."""
        children = children_of(self._process_id)
        grandchildren = [process_id for child in children for process_id in children_of(child)]
        megabytes = sum(map(rss_bytes, [self._process_id, *children, *grandchildren])) / MEGABYTE
        self._samples.append((time.monotonic() - self._started_s, megabytes))
        return megabytes

    def slope_per_h(self, since_s: float) -> float:
        """Megabytes an hour, by the line through the samples from `since_s` on."""
        return slope([(time_s / 3600, megabytes) for time_s, megabytes in self._samples if time_s >= since_s])


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the line of least squares."""
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    covariance = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return covariance / sum((x - mean_x) ** 2 for x, _ in points)
