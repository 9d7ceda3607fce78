"""Replay: requests with arrival times through an engine, simulated or real."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from octavo.core.engine_core import EngineCore, StepResult
from octavo.core.messages import EngineRequest, RequestOutput
from octavo.sim.batching import BatchingPolicy, ContinuousBatching
from octavo.sim.clock import Clock


@dataclass(slots=True)
class RequestTimes:
    """When what happened to a request, in seconds of the replay's clock, and the row it ran in."""

    arrival_s: float
    scheduled_s: float = 0.0
    token_s: list[float] = field(default_factory=list)  # of each output that brought tokens
    finished_s: float | None = None  # its last choice
    row: int = -1
    num_unfinished: int = 1  # choices
    num_cached_tokens: int = 0  # of its prompt

    @property
    def first_token_s(self) -> float | None:
        """When its first token came."""
        return self.token_s[0] if self.token_s else None


@dataclass(slots=True)
class ReplayReport:
    """What a replay came to. A slot is a row that a request can have, in one step; a KV slot holds a token."""

    num_steps: int = 0
    num_slot_steps: int = 0
    num_slot_steps_used: int = 0
    num_kv_slot_steps: int = 0  # that were some request's
    num_kv_slot_steps_used: int = 0  # that held a token of its
    duration_s: float = 0.0
    token_ids: dict[tuple[str, int], list[int]] = field(default_factory=dict)  # by (request_id, index)
    times_by_id: dict[str, RequestTimes] = field(default_factory=dict)

    @property
    def utilization(self) -> float:
        """Share of the slot-steps in which a request had the slot."""
        return self.num_slot_steps_used / self.num_slot_steps if self.num_slot_steps else 0.0

    @property
    def kv_waste(self) -> float:
        """Share of the KV slots given to requests that held nothing."""
        return 1 - self.num_kv_slot_steps_used / self.num_kv_slot_steps if self.num_kv_slot_steps else 0.0


class Replay:
    """Serves requests, each from its arrival on, and sees what becomes of them.

    `clock` runs as fast as the engine's own. `max_concurrency` closes the loop: a request whose time has come is sent
    when fewer are under way, and its times count from then. The engine gets a request `request_s` after it was sent.
    """

    def __init__(
        self,
        engine: EngineCore,
        clock: Clock,
        *,
        max_num_seqs: int,
        batching: BatchingPolicy | None = None,
        max_concurrency: int | None = None,
        request_s: float = 0.0,
    ) -> None:
        self.report = ReplayReport()
        self._engine = engine
        self._clock = clock
        self._max_num_seqs = max_num_seqs
        self._batching = batching or ContinuousBatching()
        self._max_concurrency = max_concurrency
        self._request_s = request_s
        self._coming: deque[EngineRequest] = deque()
        self._on_the_way: deque[EngineRequest] = deque()
        self._arrived: deque[EngineRequest] = deque()
        self._num_under_way = 0

    def run(self, requests: Iterable[EngineRequest]) -> ReplayReport:
        """Serve all requests. Raises RequestRejected for one that can never be served."""
        self._coming.extend(sorted(requests, key=lambda request: request.arrival_s))
        while self._coming or self._on_the_way or self._arrived or self._engine.has_unfinished:
            self._send()
            self._receive()
            for _ in range(self._batching.num_to_add(len(self._arrived), self._engine.scheduler)):
                self._engine.add_request(self._arrived.popleft())
            if self._engine.has_unfinished:
                self._take(self._engine.step())
            else:
                self._clock.advance_to(self._next_event_s())
        self.report.duration_s = self._clock()
        return self.report

    def _send(self) -> None:
        """Let them go whose time has come."""
        now_s = self._clock()
        while self._coming and self._coming[0].arrival_s <= now_s and not self._is_full:
            request = self._coming.popleft()
            arrival_s = request.arrival_s if self._max_concurrency is None else now_s
            times = RequestTimes(arrival_s, num_unfinished=request.sampling_params.n)
            self.report.times_by_id[request.request_id] = times
            self._on_the_way.append(request)
            self._num_under_way += 1

    def _receive(self) -> None:
        """Let in whoever has come to the engine."""
        while self._on_the_way and self._received_s() <= self._clock():
            self._arrived.append(self._on_the_way.popleft())

    @property
    def _is_full(self) -> bool:
        return self._max_concurrency is not None and self._num_under_way >= self._max_concurrency

    def _received_s(self) -> float:
        """When the first that is on its way comes to the engine."""
        return self.report.times_by_id[self._on_the_way[0].request_id].arrival_s + self._request_s

    def _next_event_s(self) -> float:
        """When an idle engine has something to do, or somebody is sent."""
        events_s = [self._received_s()] if self._on_the_way else []
        if self._coming and not self._is_full:
            events_s.append(self._coming[0].arrival_s)
        return min(events_s)

    def _take(self, result: StepResult) -> None:
        scheduler, report, now_s = self._engine.scheduler, self.report, self._clock()
        report.num_steps += 1
        report.num_slot_steps += self._max_num_seqs
        for request in scheduler.running:
            report.times_by_id[request.request_id].row = request.row
            num_blocks = max(len(request.block_table.blocks), request.block_table.num_promised)
            report.num_kv_slot_steps += num_blocks * scheduler.kv.block_size
            report.num_kv_slot_steps_used += request.num_computed_tokens
        num_ended = 0
        for output in result.outputs:
            num_ended += output.finish_reason is not None
            self._take_output(output, now_s)
        report.num_slot_steps_used += len(scheduler.running) + num_ended

    def _take_output(self, output: RequestOutput, now_s: float) -> None:
        self.report.token_ids.setdefault((output.request_id, output.index), []).extend(output.new_token_ids)
        times = self.report.times_by_id[output.request_id]
        times.scheduled_s = output.scheduled_s
        times.num_cached_tokens = output.num_cached_tokens
        if output.new_token_ids:
            times.token_s.append(now_s)
        if output.finish_reason is not None:
            times.finished_s = now_s
            times.num_unfinished -= 1
            self._num_under_way -= times.num_unfinished == 0
