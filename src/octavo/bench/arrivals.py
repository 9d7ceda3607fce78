"""When requests are sent, in seconds from the start. Open loop: at these times, however the server is doing."""

from __future__ import annotations

import math
import random


def arrival_times(num_requests: int, *, request_rate: float, burstiness: float, rng: random.Random) -> list[float]:
    """Times of so many requests at `request_rate` a second; at an infinite rate all come at once.

    The gaps are drawn from a gamma distribution of shape `burstiness`: 1 is a Poisson process, less is burstier, more
    is steadier, and infinity sends them at equal distances. The first comes at 0.
    """
    if math.isinf(request_rate):
        return [0.0] * num_requests
    times, now_s = [], 0.0
    for _ in range(num_requests):
        times.append(now_s)
        gap = 1.0 if math.isinf(burstiness) else rng.gammavariate(burstiness, 1 / burstiness)
        now_s += gap / request_rate
    return times
