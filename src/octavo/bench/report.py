"""What outcomes say: throughput, and never without it the latencies that it cost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from octavo.bench.draft_counts import DraftCounts
from octavo.bench.outcome import Outcome

LATENCY_NAMES = ("ttft", "tpot", "e2el")  # what an objective may limit; inter-token latencies are many a request


@dataclass(frozen=True, slots=True)
class Latency:
    """The distribution of one latency, in milliseconds."""

    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latency | None:
        """The distribution of these; None where there are none."""
        if not seconds:
            return None
        ordered = sorted(value * 1000 for value in seconds)
        p50, p95, p99 = (percentile(ordered, percent) for percent in (50, 95, 99))
        return cls(sum(ordered) / len(ordered), p50, p95, p99, ordered[-1])


@dataclass(frozen=True, slots=True)
class Report:
    """A load in figures. Rates are over the time from the first request to the last piece of text."""

    num_requests: int
    num_failed: int
    duration_s: float
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int
    requests_per_s: float
    output_tokens_per_s: float
    total_tokens_per_s: float
    goodput_requests_per_s: float | None  # of requests that met the objective, where there is one
    ttft: Latency | None
    tpot: Latency | None
    itl: Latency | None
    e2el: Latency | None
    errors: dict[str, int]  # how often each was met
    drafts: DraftCounts | None = None  # where the server guesses tokens ahead

    def to_json(self) -> dict[str, Any]:
        """The report as JSON would have it."""
        return asdict(self)

    def render(self) -> str:
        """The report as a table of lines."""
        lines = [
            f"requests              {self.num_requests} sent, {self.num_failed} failed, in {self.duration_s:.2f} s",
            f"tokens                {self.num_prompt_tokens} in ({self.num_cached_tokens} cached), "
            f"{self.num_output_tokens} out",
            f"request throughput    {self.requests_per_s:10.2f} /s",
            f"output throughput     {self.output_tokens_per_s:10.1f} tokens/s",
            f"total throughput      {self.total_tokens_per_s:10.1f} tokens/s",
        ]
        if self.goodput_requests_per_s is not None:
            lines.append(f"goodput               {self.goodput_requests_per_s:10.2f} requests/s")
        lines.append("latency, ms                 mean       p50       p95       p99       max")
        titles = {
            "ttft": "time to first token",
            "tpot": "time per output token",
            "itl": "inter-token latency",
            "e2el": "end to end",
        }
        for name, title in titles.items():
            latency: Latency | None = getattr(self, name)
            figures = asdict(latency).values() if latency else ()
            lines.append(f"{title:<22}" + "".join(f"{figure:10.1f}" for figure in figures))
        if self.drafts is not None:
            lines.append(self.drafts.render())
        lines += [f"failed {count} times: {error}" for error, count in self.errors.items()]
        return "\n".join(lines)


def summarize(outcomes: Sequence[Outcome], objective_ms: Mapping[str, float] | None = None) -> Report:
    """The figures of a load. `objective_ms` limits latencies of LATENCY_NAMES for goodput."""
    good = [outcome for outcome in outcomes if not outcome.error]
    last_s = max((outcome.chunk_s[-1] for outcome in good), default=0.0)
    duration_s = max(last_s - min((outcome.sent_s for outcome in outcomes), default=0.0), 1e-9)
    num_prompt_tokens = sum(outcome.num_prompt_tokens for outcome in good)
    num_output_tokens = sum(outcome.num_output_tokens for outcome in good)
    num_met = sum(meets(outcome, objective_ms) for outcome in good) if objective_ms else None
    return Report(
        num_requests=len(outcomes),
        num_failed=len(outcomes) - len(good),
        duration_s=duration_s,
        num_prompt_tokens=num_prompt_tokens,
        num_cached_tokens=sum(outcome.num_cached_tokens for outcome in good),
        num_output_tokens=num_output_tokens,
        requests_per_s=len(good) / duration_s,
        output_tokens_per_s=num_output_tokens / duration_s,
        total_tokens_per_s=(num_prompt_tokens + num_output_tokens) / duration_s,
        goodput_requests_per_s=None if num_met is None else num_met / duration_s,
        ttft=Latency.of([outcome.ttft_s for outcome in good]),
        tpot=Latency.of([tpot_s for outcome in good if (tpot_s := outcome.tpot_s) is not None]),
        itl=Latency.of([gap_s for outcome in good for gap_s in outcome.itl_s]),
        e2el=Latency.of([outcome.e2el_s for outcome in good]),
        errors=dict(Counter(outcome.error for outcome in outcomes if outcome.error)),
    )


def meets(outcome: Outcome, objective_ms: Mapping[str, float]) -> bool:
    """Whether no latency of the request is above its limit. One that it does not have is not."""
    return all((getattr(outcome, f"{name}_s") or 0.0) * 1000 <= limit for name, limit in objective_ms.items())


def parse_objective(texts: Sequence[str]) -> dict[str, float]:
    """Limits in milliseconds from texts like ttft:500. Raises ValueError for any other."""
    objective = {}
    for text in texts:
        name, _, limit = text.partition(":")
        try:
            value = float(limit)
        except ValueError:
            value = math.nan
        if name not in LATENCY_NAMES or not value > 0:
            names = ", ".join(LATENCY_NAMES)
            raise ValueError(f"the objective is {text!r}; write NAME:MILLISECONDS, where NAME is one of {names}")
        objective[name] = value
    return objective


def shown_ms(latency: Latency | None, figure: str) -> str:
    """One figure of a latency, such as "p95_ms", for a table."""
    return "-" if latency is None else f"{getattr(latency, figure):.1f}"


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value below which `percent` of the sorted values lie, by linear interpolation (numpy's default)."""
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
