"""Simulator: requests with arrival times through the real loop, on a virtual clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from octavo.core.engine_core import EngineCore
from octavo.core.executor import Executor, FinishedStep, StepHandle
from octavo.core.messages import EngineRequest, ModelRunnerOutput, RequestOutput, SampledRow, SchedulerOutput
from octavo.core.scheduler import Scheduler
from octavo.sim.cost_model import CostModel
from octavo.sim.engine_settings import EngineSettings

FIRST_PLAIN_TOKEN = 256  # leaves room below for tokens that end a request


class VirtualClock:
    """Time that passes only when it is told to. Call it to read it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """The time in seconds."""
        return self.now_s


class PlainModel:
    """An executor that keeps nothing and checks nothing: every sampled row gets a token that ends no request."""

    def execute(self, scheduled: SchedulerOutput) -> FinishedStep:
        """Sample every row that is due."""
        sampled = tuple(
            [
                SampledRow(row.row, (FIRST_PLAIN_TOKEN + row.row + row.num_computed_tokens,))
                for row in scheduled.scheduled
                if row.is_sampled
            ]
        )
        return FinishedStep(ModelRunnerOutput(scheduled.step_id, sampled))

    def close(self) -> None:
        """Nothing to release."""


class TimedExecutor:
    """Another executor, with the time that its steps take on a virtual clock."""

    def __init__(self, executor: Executor, cost_model: CostModel, clock: VirtualClock) -> None:
        self.num_rows_run = 0
        self._executor = executor
        self._cost_model = cost_model
        self._clock = clock

    def execute(self, scheduled: SchedulerOutput) -> StepHandle:
        """Execute a step and let its time pass."""
        self.num_rows_run += len(scheduled.scheduled)
        self._clock.now_s += self._cost_model.step_s(scheduled)
        return self._executor.execute(scheduled)

    def close(self) -> None:
        """Close the other executor."""
        self._executor.close()


class BatchingPolicy(Protocol):
    """When requests that have arrived are handed to the engine."""

    def num_to_add(self, num_arrived: int, scheduler: Scheduler) -> int:
        """How many of them to hand over before the next step."""
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


@dataclass(slots=True)
class RequestTimes:
    """When what happened to a request, in virtual seconds."""

    arrival_s: float
    first_token_s: float | None = None
    finished_s: float | None = None  # its last choice


@dataclass(slots=True)
class SimulationReport:
    """What a simulation came to. A slot is a row the engine could run, in one step."""

    num_steps: int = 0
    num_slot_steps: int = 0
    num_slot_steps_used: int = 0
    duration_s: float = 0.0
    token_ids: dict[tuple[str, int], list[int]] = field(default_factory=dict)  # by (request_id, index)
    times_by_id: dict[str, RequestTimes] = field(default_factory=dict)

    @property
    def utilization(self) -> float:
        """Share of the slot-steps in which a request ran."""
        return self.num_slot_steps_used / self.num_slot_steps if self.num_slot_steps else 0.0


class Simulator:
    """The real scheduler and loop, an executor of any kind, and a clock that a cost model moves."""

    def __init__(
        self,
        settings: EngineSettings,
        executor: Executor,
        *,
        cost_model: CostModel | None = None,
        batching: BatchingPolicy | None = None,
    ) -> None:
        self.clock = VirtualClock()
        self.report = SimulationReport()
        self.scheduler = settings.build_scheduler()
        self._executor = TimedExecutor(executor, cost_model or CostModel(), self.clock)
        self._engine = EngineCore(self.scheduler, self._executor, self.clock)
        self._max_num_seqs = settings.max_num_seqs
        self._batching = batching or ContinuousBatching()

    def run(self, requests: Iterable[EngineRequest]) -> SimulationReport:
        """Serve all requests, each from its `arrival_s` on. Raises RequestRejected for one that can never be served."""
        coming = deque(sorted(requests, key=lambda request: request.arrival_s))
        arrived: deque[EngineRequest] = deque()
        while coming or arrived or self._engine.has_unfinished:
            while coming and coming[0].arrival_s <= self.clock.now_s:
                arrived.append(coming.popleft())
            for _ in range(self._batching.num_to_add(len(arrived), self.scheduler)):
                self._add(arrived.popleft())
            if self._engine.has_unfinished:
                self._step()
            else:
                self.clock.now_s = coming[0].arrival_s
        self.report.num_slot_steps_used = self._executor.num_rows_run
        self.report.duration_s = self.clock.now_s
        return self.report

    def _add(self, request: EngineRequest) -> None:
        self._engine.add_request(request)
        self.report.times_by_id[request.request_id] = RequestTimes(request.arrival_s)

    def _step(self) -> None:
        self.report.num_steps += 1
        self.report.num_slot_steps += self._max_num_seqs
        for output in self._engine.step().outputs:
            self._take(output)

    def _take(self, output: RequestOutput) -> None:
        self.report.token_ids.setdefault((output.request_id, output.index), []).extend(output.new_token_ids)
        times = self.report.times_by_id[output.request_id]
        if times.first_token_s is None and output.new_token_ids:
            times.first_token_s = self.clock.now_s
        if output.finish_reason is not None:
            times.finished_s = self.clock.now_s
