"""A sweep: the same workload at growing load, and where more load stops paying."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from octavo.bench.benchmark import Settings
from octavo.bench.report import Report
from octavo.bench.workload import RandomWorkload, Workload

VARIED = ("concurrency", "rate")


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """What one load brought."""

    value: float  # of what was varied
    report: Report

    def to_json(self) -> dict[str, Any]:
        """The point as JSON would have it."""
        return {"value": self.value, "report": self.report.to_json()}


def parse_loads(varied: str, text: str) -> list[float]:
    """The loads of a sweep, from a text like 1,2,4,8. Raises ValueError unless they are positive and grow."""
    if varied not in VARIED:
        raise ValueError(f"vary is {varied!r}; it must be one of {', '.join(VARIED)}")
    try:
        loads = [float(value) for value in text.split(",")]
    except ValueError:
        loads = []
    if not loads or not all(load > 0 for load in loads) or loads != sorted(set(loads)):
        raise ValueError(f"the values are {text!r}; write positive numbers in growing order, like 1,2,4,8")
    return loads


def at_load(varied: str, value: float, workload: Workload, settings: Settings) -> tuple[RandomWorkload, Settings]:
    """The workload and the settings of one point. Its prompts are its own, so that no cache knows them.

    Raises ValueError for a trace.
    """
    if not isinstance(workload, RandomWorkload):
        raise ValueError("a trace has its own times, which a sweep would change; leave --trace out")
    workload = replace(workload, seed=workload.seed + round(1000 * value))
    if varied == "rate":
        return replace(workload, request_rate=value), settings
    return workload, replace(settings, max_concurrency=round(value))


def find_knee(points: Sequence[SweepPoint]) -> SweepPoint:
    """The point from which on more load brings little throughput and costs latency.

    It is where the curve of output throughput over load is farthest above the straight line between its ends, both axes
    scaled to 0..1 (Satopaa et al. 2011, "Kneedle"). A curve that nowhere bends down has its knee at its last point.
    Points must be in the order of their load.
    """
    first, last = points[0], points[-1]
    load_span = last.value - first.value
    gain = max(point.report.output_tokens_per_s for point in points) - first.report.output_tokens_per_s
    if load_span <= 0 or gain <= 0:
        return first

    def height(point: SweepPoint) -> float:
        gained = (point.report.output_tokens_per_s - first.report.output_tokens_per_s) / gain
        return gained - (point.value - first.value) / load_span

    highest = max(points, key=height)
    return highest if height(highest) > 0 else last
