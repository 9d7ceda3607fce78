"""The load itself: every request sent at its time, every outcome kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from octavo.bench.completion_client import CompletionClient
from octavo.bench.outcome import Outcome
from octavo.bench.workload import LoadRequest


async def run_load(
    client: CompletionClient,
    requests: Sequence[LoadRequest],
    *,
    max_concurrency: int | None = None,
    on_end: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Send each request at its time and wait for all, in the order of `requests`.

    `max_concurrency` closes the loop: a request whose time has come waits until fewer are under way, and its latency
    counts from when it is sent.
    """
    start_s = time.perf_counter()
    places = asyncio.Semaphore(max_concurrency or len(requests) or 1)

    async def run_one(request: LoadRequest) -> Outcome:
        await asyncio.sleep(start_s + request.arrival_s - time.perf_counter())
        async with places:
            outcome = await client.run(request, start_s)
        on_end(outcome)
        return outcome

    return await asyncio.gather(*(run_one(request) for request in requests))
