"""History: the last minutes of the engine as curves, and its last steps one by one."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import NamedTuple

from octavo.core.messages import StepStats

INTERVAL_S = 2.0
NUM_INTERVALS = 150  # five minutes
MAX_STEPS = 600
DURATION_RATIO = 1.05  # durations are kept to within a twentieth, so that memory does not grow with the load


class Durations:
    """A distribution of durations, told within DURATION_RATIO."""

    def __init__(self) -> None:
        self._count_by_exponent: Counter[int] = Counter()  # of DURATION_RATIO, in seconds

    def add(self, seconds: float) -> None:
        """Enter one; those below a microsecond count as one."""
        self._count_by_exponent[round(math.log(max(seconds, 1e-6), DURATION_RATIO))] += 1

    def percentile_ms(self, percent: float) -> float | None:
        """The duration, in milliseconds, that `percent` of them do not exceed; None where there are none."""
        num_left = math.ceil(self._count_by_exponent.total() * percent / 100)
        for exponent in sorted(self._count_by_exponent):
            num_left -= self._count_by_exponent[exponent]
            if num_left <= 0:
                return round(1000 * DURATION_RATIO**exponent, 3)
        return None


@dataclass(slots=True)
class Interval:
    """What happened in INTERVAL_S seconds."""

    num_output_tokens: int = 0
    num_computed_tokens: int = 0
    ttft: Durations = field(default_factory=Durations)
    itl: Durations = field(default_factory=Durations)


class StepMark(NamedTuple):
    """One step, on the way to being drawn."""

    ended_s: float  # on the clock of whoever tells of it
    step_s: float
    num_prompt_tokens: int
    num_decode_tokens: int


@dataclass(frozen=True, slots=True)
class Curves:
    """The whole intervals of the last minutes, oldest first, one value each; None where there was nothing to time."""

    interval_s: float
    output_tokens_per_s: list[float]
    computed_tokens_per_s: list[float]  # of prompts and outputs, without what the prefix cache had
    ttft_p50_ms: list[float | None]
    ttft_p95_ms: list[float | None]
    itl_p50_ms: list[float | None]
    itl_p95_ms: list[float | None]


class History:
    """Told of steps and tokens as they come, with the time in seconds on one clock. Its size is bounded."""

    def __init__(self) -> None:
        self.steps: deque[StepMark] = deque(maxlen=MAX_STEPS)
        self._interval_by_place: dict[int, Interval] = {}  # place: how many INTERVAL_S fit before it

    def take_step(self, stats: StepStats, now_s: float) -> None:
        """A step has ended."""
        if stats.num_tokens:
            num_decode_tokens = stats.num_tokens - stats.num_prompt_tokens
            self.steps.append(StepMark(now_s, stats.step_s, stats.num_prompt_tokens, num_decode_tokens))
            self._interval(now_s).num_computed_tokens += stats.num_tokens

    def take_first_tokens(self, num_tokens: int, ttft_s: float, now_s: float) -> None:
        """A choice has got its first tokens."""
        interval = self._interval(now_s)
        interval.num_output_tokens += num_tokens
        interval.ttft.add(ttft_s)

    def take_next_tokens(self, num_tokens: int, itl_s: float, now_s: float) -> None:
        """A choice has got more tokens, `itl_s` after those before."""
        interval = self._interval(now_s)
        interval.num_output_tokens += num_tokens
        interval.itl.add(itl_s)

    def curves(self, now_s: float) -> Curves:
        """The curves up to the last whole interval before `now_s`."""
        end = int(now_s // INTERVAL_S)
        idle = Interval()
        intervals = [self._interval_by_place.get(place, idle) for place in range(end - NUM_INTERVALS, end)]
        return Curves(
            interval_s=INTERVAL_S,
            output_tokens_per_s=[interval.num_output_tokens / INTERVAL_S for interval in intervals],
            computed_tokens_per_s=[interval.num_computed_tokens / INTERVAL_S for interval in intervals],
            ttft_p50_ms=[interval.ttft.percentile_ms(50) for interval in intervals],
            ttft_p95_ms=[interval.ttft.percentile_ms(95) for interval in intervals],
            itl_p50_ms=[interval.itl.percentile_ms(50) for interval in intervals],
            itl_p95_ms=[interval.itl.percentile_ms(95) for interval in intervals],
        )

    def _interval(self, now_s: float) -> Interval:
        place = int(now_s // INTERVAL_S)
        if place not in self._interval_by_place:
            for old in [old for old in self._interval_by_place if old < place - NUM_INTERVALS]:
                del self._interval_by_place[old]
            self._interval_by_place[place] = Interval()
        return self._interval_by_place[place]
