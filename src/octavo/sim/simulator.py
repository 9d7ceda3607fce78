"""Simulator: requests with arrival times through the real loop, on a virtual clock."""

from __future__ import annotations

from collections.abc import Iterable

from octavo.core.engine_core import EngineCore
from octavo.core.executor import Executor, FinishedStep, StepHandle
from octavo.core.messages import EngineRequest, ModelRunnerOutput, SampledRow, SchedulerOutput
from octavo.sim.batching import BatchingPolicy
from octavo.sim.clock import VirtualClock
from octavo.sim.cost_model import CostModel
from octavo.sim.engine_settings import EngineSettings
from octavo.sim.replay import Replay, ReplayReport

FIRST_PLAIN_TOKEN = 256  # leaves room below for tokens that end a request


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
        self._executor = executor
        self._cost_model = cost_model
        self._clock = clock

    def execute(self, scheduled: SchedulerOutput) -> StepHandle:
        """Execute a step and let its time pass."""
        self._clock.now_s += self._cost_model.step_s(scheduled)
        return self._executor.execute(scheduled)

    def close(self) -> None:
        """Close the other executor."""
        self._executor.close()


class Simulator:
    """The real scheduler and loop, an executor of any kind, and a clock that a cost model moves."""

    def __init__(
        self,
        settings: EngineSettings,
        executor: Executor,
        *,
        cost_model: CostModel | None = None,
        batching: BatchingPolicy | None = None,
        max_concurrency: int | None = None,
    ) -> None:
        cost_model = cost_model or CostModel()
        self.clock = VirtualClock()
        self.scheduler = settings.build_scheduler()
        timed = TimedExecutor(executor, cost_model, self.clock)
        self._replay = Replay(
            EngineCore(self.scheduler, timed, self.clock),
            self.clock,
            max_num_seqs=settings.max_num_seqs,
            batching=batching,
            max_concurrency=max_concurrency,
            request_s=cost_model.request_s,
        )

    def run(self, requests: Iterable[EngineRequest]) -> ReplayReport:
        """Serve all requests. Raises RequestRejected for one that can never be served."""
        return self._replay.run(requests)
