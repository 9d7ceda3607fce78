"""Snapshot: the scheduler between two steps, for whoever looks at it. Made on demand: no step pays for it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from octavo.core.block import Block
from octavo.core.request import Request, RequestStatus
from octavo.core.scheduler import Scheduler

MAX_WAITING = 100  # of those that wait, the first by arrival; their number is in StepStats

# What a block is to those who look, one character each.
FREE = "."  # nobody holds it, and it holds nothing
CACHED = "c"  # nobody holds it, but a request with the same prefix would find it
HELD = "h"  # one request holds it
SHARED = "s"  # several do


@dataclass(frozen=True, slots=True)
class RequestSnapshot:
    """One choice of a request, where it stands."""

    request_id: str
    index: int
    status: str  # a value of RequestStatus
    num_prompt_tokens: int
    num_cached_tokens: int  # of the prompt, taken from the prefix cache at first admission
    num_computed_tokens: int
    num_tokens: int  # known: the prompt and what was generated
    max_total_tokens: int
    num_preemptions: int
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The requests and the pool."""

    running: tuple[RequestSnapshot, ...]
    waiting: tuple[RequestSnapshot, ...]  # MAX_WAITING at most
    blocks: str  # FREE, CACHED, HELD or SHARED for each block_id
    block_size: int  # tokens


def take_snapshot(scheduler: Scheduler) -> Snapshot:
    """The scheduler as it is now, in time proportional to the blocks."""
    waiting = (request for request in scheduler.requests() if request.status is not RequestStatus.RUNNING)
    return Snapshot(
        running=tuple(map(_describe, scheduler.running)),
        waiting=tuple(map(_describe, islice(waiting, MAX_WAITING))),
        blocks="".join(map(_mark, scheduler.kv.pool.blocks)),
        block_size=scheduler.kv.block_size,
    )


def _describe(request: Request) -> RequestSnapshot:
    return RequestSnapshot(
        request_id=request.request_id,
        index=request.index,
        status=request.status.value,
        num_prompt_tokens=request.num_prompt_tokens,
        num_cached_tokens=request.num_cached_tokens or 0,
        num_computed_tokens=request.num_computed_tokens,
        num_tokens=request.num_tokens,
        max_total_tokens=request.max_total_tokens,
        num_preemptions=request.num_preemptions,
        block_ids=tuple(block.block_id for block in request.block_table.blocks),
    )


def _mark(block: Block) -> str:
    if block.ref_count == 0:
        return FREE if block.key is None else CACHED
    return HELD if block.ref_count == 1 else SHARED
