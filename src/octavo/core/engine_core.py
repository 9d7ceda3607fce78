"""EngineCore: the loop. The same code serves, simulates and is tested; only executor and clock differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from octavo.core.executor import Executor
from octavo.core.messages import EngineRequest, RequestOutput, SchedulerOutput, StepStats
from octavo.core.scheduler import Scheduler
from octavo.core.step_budget import StepBudget


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one turn of the loop brought."""

    outputs: tuple[RequestOutput, ...]
    stats: StepStats


class EngineCore:
    """Scheduler and executor, one step after another."""

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        clock: Callable[[], float],
        step_budget: StepBudget | None = None,
    ) -> None:
        self.scheduler = scheduler
        self._executor = executor
        self._clock = clock
        self._step_budget = step_budget
        self._aborted: list[RequestOutput] = []
        self._no_drafts_reason = ""

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
        scheduled = self.scheduler.schedule(started_s, self._max_num_tokens())
        if scheduled.scheduled:
            handle = self._executor.execute(scheduled)
            output = handle.result()
            outputs += self.scheduler.update(scheduled, output)
            self._no_drafts_reason = output.no_drafts_reason
        step_s = self._clock() - started_s
        if self._step_budget and scheduled.scheduled:
            self._step_budget.observe(scheduled.num_tokens, step_s)
        return StepResult(tuple(outputs), self._stats(scheduled, step_s))

    def close(self) -> None:
        """Release the executor."""
        self._executor.close()

    def _max_num_tokens(self) -> int | None:
        if self._step_budget is None:
            return None
        return self._step_budget.num_tokens(sum(1 for request in self.scheduler.running if request.num_output_tokens))

    def _stats(self, scheduled: SchedulerOutput, step_s: float) -> StepStats:
        pool, totals = self.scheduler.kv.pool, self.scheduler.totals
        return StepStats(
            step_id=scheduled.step_id,
            num_running=len(self.scheduler.running),
            num_waiting=len(self.scheduler.waiting),
            num_tokens=scheduled.num_tokens,
            num_prompt_tokens=sum(row.num_scheduled_tokens for row in scheduled.scheduled if row.is_chunk),
            num_free_blocks=pool.num_free,
            num_blocks=pool.num_blocks,
            num_preemptions_total=totals.num_preemptions,
            num_prefix_queries_total=totals.num_prefix_queries,
            num_prefix_hits_total=totals.num_prefix_hits,
            num_drafts_total=totals.num_drafts,
            num_draft_tokens_total=totals.num_draft_tokens,
            num_accepted_tokens_per_pos_total=tuple(totals.num_accepted_by_position),
            no_drafts_reason=self._no_drafts_reason,
            step_s=step_s,
        )
