"""CheckedEngine: the real loop over the ledger model, everything inspected, every answer held against the solo one."""

from __future__ import annotations

from collections.abc import Callable

from octavo.core.admission import RequestRejected
from octavo.core.engine_core import EngineCore, StepResult
from octavo.core.messages import EngineRequest, SchedulerOutput
from octavo.core.request import Request
from octavo.core.scheduler import MAX_PREEMPTIONS
from octavo.sim import invariants
from octavo.sim.engine_settings import EngineSettings, WeakPrefixIndex
from octavo.sim.inspector import Inspector
from octavo.sim.ledger_model import LedgerModel, Noise
from octavo.sim.streams import Stream, Streams

Listener = Callable[[SchedulerOutput, StepResult], None]  # is told of each step


class CheckedEngine:
    """Serves requests like EngineCore, and raises an AssertionError at the first thing that is not as it must be."""

    def __init__(
        self,
        settings: EngineSettings,
        *,
        vocab_size: int = 100,
        max_drafts: int = 0,
        noise: Noise | None = None,
        listener: Listener | None = None,
    ) -> None:
        self.scheduler = settings.build_scheduler()
        self.num_steps = 0
        self._settings = settings
        self._listener = listener
        ledger = LedgerModel(
            num_blocks=settings.num_blocks,
            block_size=settings.block_size,
            max_num_seqs=settings.max_num_seqs,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            vocab_size=vocab_size,
            noise=noise,
        )
        self.coverage = ledger.coverage
        self.streams = Streams(max_model_len=settings.max_model_len, vocab_size=vocab_size)
        self._inspector = Inspector(
            self.scheduler, ledger, max_drafts=max_drafts, has_collisions=settings.has_weak_hash
        )
        self._engine = EngineCore(self.scheduler, self._inspector, clock=lambda: float(self.num_steps))

    @property
    def last_scheduled(self) -> SchedulerOutput:
        """The last step that was executed."""
        return self._inspector.last_scheduled

    def add(self, request: EngineRequest) -> None:
        """Queue a request. Raises RequestRejected like EngineCore, and AssertionError if there was no need to."""
        try:
            self._engine.add_request(request)
        except RequestRejected:
            self._check_rejected(request)
            raise
        self.streams.open(request)

    def abort(self, request_id: str, index: int | None = None) -> None:
        """End one choice of a request, or all."""
        self.streams.allow_abort(request_id, index)
        self._engine.abort_request(request_id, index)

    def step(self) -> tuple[StepResult, list[Stream]]:
        """Run one step; return its result and the streams that it ended."""
        self.num_steps += 1
        due = {(request.request_id, request.index) for request in self.scheduler.requests() if self._is_due(request)}
        has_work = any((request.request_id, request.index) not in due for request in self.scheduler.requests())
        result = self._engine.step()
        invariants.require(not has_work or result.stats.num_tokens > 0, "nobody runs in step", self.num_steps)
        self._inspector.check_settled()
        expired = {(end.request_id, end.index) for end in result.outputs if end.finish_reason == "timeout"}
        invariants.require(expired == due, "expired:", expired, "and not", due)
        if self._listener is not None:
            self._listener(self.last_scheduled, result)
        return result, self.streams.take(result.outputs)

    def drain(self) -> None:
        """Run until everything has ended, within a bound; then nothing may be left of anybody.

        The bound: a step with unfinished requests runs at least one row, as the oldest running request cannot lose its
        blocks to a younger one but to those promised all they need, who then run. A row's run advances its sequence
        by at least one computed token that stays. A sequence computes at most max_total_tokens - 1 tokens, and begins
        anew at most MAX_PREEMPTIONS times. One step more may deliver outputs of aborts.
        """
        num_runs = sum(request.max_total_tokens - 1 for request in self.scheduler.requests())
        last_step = self.num_steps + (MAX_PREEMPTIONS + 1) * num_runs + 1
        while self._engine.has_unfinished:
            invariants.require(self.num_steps < last_step, "not empty at step", last_step, "without arrivals")
            self.step()
        self.streams.check_all_ended()
        invariants.check_drained(self.scheduler)
        self._count_totals()

    def _is_due(self, request: Request) -> bool:
        """Whether the request's time is over: all of it, or the time in which it should have got a row."""
        source = self.streams.get(request.request_id, request.index).request
        has_had_row = request.request_id in self._inspector.admitted_ids
        if source.deadline_s is not None and source.deadline_s <= self.num_steps:
            self.coverage[f"timeout {request.status.value}"] += 1
            return True
        if has_had_row or source.queue_deadline_s is None or source.queue_deadline_s > self.num_steps:
            return False
        self.coverage["timeout in the queue"] += 1
        return True

    def _check_rejected(self, request: EngineRequest) -> None:
        """A refusal is right if the prompt leaves no room for an output, or the empty pool could not hold it all."""
        settings = self._settings
        num_prompt_tokens = len(request.prompt_token_ids)
        max_tokens = request.sampling_params.max_tokens or settings.max_model_len
        num_kv_tokens = min(num_prompt_tokens + max_tokens, settings.max_model_len) - 1
        is_too_long = not 0 < num_prompt_tokens < settings.max_model_len
        is_too_large = num_kv_tokens > settings.num_blocks * settings.block_size
        invariants.require(is_too_long or is_too_large, "refused without need:", request)
        self.coverage["never fits"] += 1

    def _count_totals(self) -> None:
        kv = self.scheduler.kv
        self.coverage["cached block evicted"] += kv.pool.num_evictions
        if isinstance(kv.index, WeakPrefixIndex):
            self.coverage["key collision"] += kv.index.num_collisions
            self.coverage["prefix hit in spite of collisions"] += self.coverage["prefix hit"]
