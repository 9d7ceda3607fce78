"""Scheduler: decides, anew at every step, which tokens of which requests are computed next."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from operator import attrgetter

from octavo.core.admission import AdmissionLimits
from octavo.core.choices import Choices
from octavo.core.deadlines import Deadlines
from octavo.core.fair_queue import FairQueue
from octavo.core.kv_cache_manager import KVCacheManager
from octavo.core.messages import (
    EngineRequest,
    ModelRunnerOutput,
    NewRow,
    RequestOutput,
    SampledRow,
    ScheduledRow,
    SchedulerOutput,
)
from octavo.core.request import Request, RequestStatus
from octavo.core.row_map import RowMap
from octavo.core.totals import Totals
from octavo.core.waiting_queue import WaitingQueue

MAX_PREEMPTIONS = 3  # after so many, a request is admitted only with the promise of all it can ever need
POLICIES = ("fcfs", "priority", "fair")


class Scheduler:
    """Continuous batching by counting tokens.

    A running request gets the tokens it lacks, as far as the step's budget and the pool allow; then waiting requests
    are admitted while there is room. Running requests stand in the order of their queue keys, so that whoever must
    give way (the youngest) always comes after whoever needs its blocks.
    """

    def __init__(
        self, kv: KVCacheManager, *, max_num_seqs: int, max_num_batched_tokens: int, max_model_len: int, policy: str
    ) -> None:
        if policy not in POLICIES:
            raise ValueError(f"policy is {policy!r}; choose one of {', '.join(POLICIES)}")
        self.kv = kv
        self.limits = AdmissionLimits(max_model_len, kv.pool.num_blocks, kv.block_size)
        self.max_num_batched_tokens = max_num_batched_tokens
        self.has_priorities = policy == "priority"
        self.waiting: WaitingQueue | FairQueue = FairQueue() if policy == "fair" else WaitingQueue()
        self.running: list[Request] = []
        self.totals = Totals()
        self._choices = Choices()
        self._deadlines = Deadlines()
        self._rows = RowMap(max_num_seqs)
        self._num_arrivals = 0
        self._step_id = 0

    @property
    def has_unfinished(self) -> bool:
        """Whether any request has not ended."""
        return bool(self._choices)

    def requests(self) -> Iterator[Request]:
        """All requests that have not ended."""
        return iter(self._choices)

    @property
    def num_deadlines(self) -> int:
        """Requests whose time is watched."""
        return len(self._deadlines)

    def add(self, source: EngineRequest) -> None:
        """Queue a request, or refuse it: raises RequestRejected, with the numbers, if it could never be served."""
        params = source.sampling_params
        num_prompt_tokens = len(source.prompt_token_ids)
        self.limits.check(num_prompt_tokens, params.max_tokens)
        self._num_arrivals += 1
        priority = source.priority if self.has_priorities else 0
        max_total = self.limits.max_total_tokens(num_prompt_tokens, params.max_tokens)
        self.waiting.add(self._choices.enter(source, (priority, self._num_arrivals), max_total))
        self._deadlines.add(source)

    def abort(self, request_id: str, index: int | None = None) -> list[RequestOutput]:
        """End one choice of a request, or all. Unknown or ended ones are ignored: their end may have crossed this."""
        doomed = [request for request in self._choices.of(request_id) if index in (None, request.index)]
        return self._end_early(doomed, "abort")

    def expire(self, now_s: float) -> list[RequestOutput]:
        """End the requests whose deadline has come, wherever they stand."""
        outputs = []
        for request_id in self._deadlines.take_due(now_s):
            outputs += self._end_early(self._choices.of(request_id), "timeout")
        return outputs

    def schedule(self, now_s: float = 0.0, max_num_tokens: int | None = None) -> SchedulerOutput:
        """Decide one step, which begins at `now_s`; `max_num_tokens` may narrow its budget, but not widen it."""
        rows: list[ScheduledRow] = []
        new_rows: list[NewRow] = []
        budget = full_budget = min(self.max_num_batched_tokens, max_num_tokens or self.max_num_batched_tokens)
        num_preemptions = self.totals.num_preemptions
        num_left = len(self.running)  # each of them gets a token before any gets a long chunk
        for request in list(self.running):
            num_left -= 1
            if request.status is not RequestStatus.RUNNING or budget == 0:
                continue
            num_tokens = self._num_tokens_to_run(request, max(1, budget - num_left))
            if num_tokens:
                rows.append(self._schedule_row(request, num_tokens))
                budget -= num_tokens
        while budget and self.waiting and self._rows.num_free and self.totals.num_preemptions == num_preemptions:
            request = self.waiting.peek()
            if not self._admit(request):
                break
            if request.num_preemptions == 0:
                request.scheduled_s = now_s
            new_rows.append(_new_row(request))
            num_tokens = self._num_tokens_to_run(request, budget)
            rows.append(self._schedule_row(request, num_tokens))
            budget -= num_tokens
        return self._step(rows, new_rows, full_budget - budget)

    def update(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> list[RequestOutput]:
        """Take in what a step computed: count, append, finish, publish."""
        sampled_by_row = {sampled.row: sampled for sampled in output.sampled}
        outputs = []
        for row in scheduled.scheduled:
            request = self._rows[row.row]
            request.num_computed_tokens += row.num_scheduled_tokens
            sampled = sampled_by_row.get(row.row)
            if sampled is None:
                self.kv.publish(request)
            else:
                outputs.append(self._take_tokens(request, row, sampled))
        return outputs

    def _num_tokens_to_run(self, request: Request, limit: int) -> int:
        """How many tokens the request runs in this step, with room made for their KV; 0 if it gave way itself."""
        while True:
            num_tokens = min(request.num_tokens_with_drafts - request.num_computed_tokens, limit)
            if self.kv.grow(request, request.num_computed_tokens + num_tokens):
                return num_tokens
            if request.draft_token_ids:  # a guess is not worth anybody's blocks
                request.draft_token_ids = ()
                continue
            victim = self._victim(request)
            self._preempt(victim)
            if victim is request:
                return 0

    def _victim(self, request: Request) -> Request:
        """The youngest running request that has not been promised all it needs; at worst the one that asks."""
        for candidate in reversed(self.running):
            if candidate is request or candidate.num_preemptions < MAX_PREEMPTIONS:
                return candidate
        raise AssertionError(f"request {request.request_id} is not running")

    def _preempt(self, request: Request) -> None:
        """Take a request's row and blocks; it keeps its tokens and will compute their KV again."""
        self._leave_row(request)
        request.status = RequestStatus.PREEMPTED
        request.num_preemptions += 1
        request.num_computed_tokens = 0
        request.draft_token_ids = ()
        self.totals.num_preemptions += 1
        self.waiting.add(request)

    def _admit(self, request: Request) -> bool:
        """Give the request a row and its first blocks, if one block is left for each running request to grow into."""
        is_last_try = request.num_preemptions >= MAX_PREEMPTIONS
        num_promised_tokens = request.max_total_tokens - 1 if is_last_try else request.num_tokens
        hit = self.kv.find_hit(request)
        num_hit_tokens = self.kv.admit(request, hit, num_promised_tokens, num_spare=len(self.running))
        if num_hit_tokens is None:
            return False
        self.waiting.remove(request)
        request.fork_source = None
        request.status = RequestStatus.RUNNING
        self._rows.take(request)
        insort(self.running, request, key=attrgetter("queue_key"))
        self.totals.num_prefix_queries += request.num_tokens
        self.totals.num_prefix_hits += num_hit_tokens
        if request.num_cached_tokens is None:
            request.num_cached_tokens = num_hit_tokens
            request.cache_miss = self.kv.explain_miss(request, hit) if request.explains_cache_miss else None
            self._deadlines.leave_queue(request.request_id)
            self.waiting.charge(request, num_prompt_tokens=request.num_tokens - num_hit_tokens)
        return True

    def _schedule_row(self, request: Request, num_tokens: int) -> ScheduledRow:
        """Describe what the request runs in this step."""
        end = request.num_computed_tokens + num_tokens
        is_sampled = end >= request.num_tokens
        drafts = request.draft_token_ids[: max(0, end - request.num_tokens)]
        start, block_ids = request.block_table.take_change()
        return ScheduledRow(request.row, end - num_tokens, num_tokens, is_sampled, start, block_ids, drafts)

    def _step(self, rows: list[ScheduledRow], new_rows: list[NewRow], num_tokens: int) -> SchedulerOutput:
        """Close a step. One without tokens is not carried out, so what it would have told stays to be told."""
        if not rows:
            return SchedulerOutput(self._step_id, 0, ())
        self._step_id += 1
        freed_rows, copies = self._rows.take_freed(), self.kv.take_copies()
        return SchedulerOutput(self._step_id, num_tokens, tuple(rows), tuple(new_rows), freed_rows, copies)

    def _take_tokens(self, request: Request, row: ScheduledRow, sampled: SampledRow) -> RequestOutput:
        """Append what was sampled, as far as the request goes, and end it where it ends."""
        if sampled.error is not None:
            self._finish(request)
            return _last_output(request, "error", sampled.error)
        num_before = request.num_tokens
        num_drafts = len(row.draft_token_ids)
        if num_drafts:
            self.totals.count_drafts(num_drafts, len(sampled.token_ids) - 1)
        request.num_computed_tokens -= num_drafts + 1 - len(sampled.token_ids)  # rejected drafts
        end = None
        for token_id in sampled.token_ids:
            end = request.append_token(token_id)
            if end is not None:
                break
        self.kv.publish(request)
        num_left = max(0, request.max_total_tokens - request.num_tokens - 1)  # the last token is never a draft
        request.draft_token_ids = sampled.draft_token_ids[:num_left]
        num_new = request.num_tokens - num_before
        self.waiting.charge(request, num_output_tokens=num_new)
        finish_reason, stop_reason = end or (None, None)
        self._queue_siblings(request)
        if end is not None:
            self._finish(request)
        return RequestOutput(
            request.request_id,
            request.index,
            sampled.token_ids[:num_new],
            sampled.logprobs[:num_new],
            finish_reason,
            stop_reason,
            request.num_cached_tokens or 0,
            prompt_logprobs=sampled.prompt_logprobs,
            scheduled_s=request.scheduled_s,
            cache_miss=request.cache_miss,
        )

    def _end_early(self, doomed: list[Request], finish_reason: str) -> list[RequestOutput]:
        for request in doomed[::-1]:  # siblings first, lest the leader's end sets them waiting
            self._finish(request)
        return [_last_output(request, finish_reason) for request in doomed]

    def _queue_siblings(self, request: Request) -> None:
        """Let the choices that waited for this one's prompt join the queue."""
        for sibling in self._choices.take_siblings(request):
            self.waiting.add(sibling)

    def _finish(self, request: Request) -> None:
        """Take a request out, wherever it stands."""
        if request.status is RequestStatus.RUNNING:
            self._leave_row(request)
        elif request.status is not RequestStatus.FORKING:
            self.waiting.remove(request)
        request.status = RequestStatus.FINISHED
        request.num_computed_tokens = 0  # lest a choice that waits for it takes over blocks it no longer has
        if self._choices.leave(request):
            self._deadlines.forget(request.request_id)
        self._queue_siblings(request)

    def _leave_row(self, request: Request) -> None:
        """Take back the row and the blocks."""
        self.kv.free(request)
        self.running.remove(request)
        self._rows.give_back(request)


def _new_row(request: Request) -> NewRow:
    return NewRow(
        request.row,
        tuple(request.token_ids),
        request.num_prompt_tokens,
        request.sampling_params,
        request.seed,
        request.end_token_ids,
        request.bad_word_token_ids,
        request.has_prompt_logprobs,
    )


def _last_output(request: Request, finish_reason: str, error: str | None = None) -> RequestOutput:
    return RequestOutput(
        request.request_id,
        request.index,
        (),
        finish_reason=finish_reason,
        num_cached_tokens=request.num_cached_tokens or 0,
        error=error,
    )
