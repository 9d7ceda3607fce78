"""EngineCore: the loop. The same code serves, simulates and is tested; only executor and clock differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from octavo.core.executor import Executor
from octavo.core.messages import EngineRequest, RequestOutput, StepStats
from octavo.core.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one turn of the loop brought."""

    outputs: tuple[RequestOutput, ...]
    stats: StepStats


class EngineCore:
    """Scheduler and executor, one step after another."""

    def __init__(self, scheduler: Scheduler, executor: Executor, clock: Callable[[], float]) -> None:
        self.scheduler = scheduler
        self._executor = executor
        self._clock = clock
        self._aborted: list[RequestOutput] = []

    @property
    def has_unfinished(self) -> bool:
        """Whether a step would do anything."""
        return self.scheduler.has_unfinished or bool(self._aborted)

    def add_request(self, request: EngineRequest) -> None:
        """Queue a request. Raises RequestRejected, with the numbers, if it could never be served."""
        self.scheduler.add(request)

    def abort_request(self, request_id: str, index: int | None = None) -> None:
        """End one choice of a request, or all; their last outputs come with the next step. Unknown ids are ignored."""
        self._aborted += self.scheduler.abort(request_id, index)

    def step(self) -> StepResult:
        """Schedule, execute, update."""
        started_s = self._clock()
        outputs, self._aborted = self._aborted, []
        outputs += self.scheduler.expire(started_s)
        scheduled = self.scheduler.schedule(started_s)
        if scheduled.scheduled:
            handle = self._executor.execute(scheduled)
            outputs += self.scheduler.update(scheduled, handle.result())
        stats = self.scheduler.stats(scheduled, self._clock() - started_s)
        return StepResult(tuple(outputs), stats)

    def close(self) -> None:
        """Release the executor."""
        self._executor.close()
