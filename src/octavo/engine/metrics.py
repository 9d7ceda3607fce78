"""EngineMetrics: what the engine does, as Prometheus scrapes it. Names are vLLM's behind a prefix of choice.

Fed by the front with what passes through it; times are of `time.monotonic`, which both processes of a machine share.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from octavo.core.messages import EngineRequest, RequestOutput, StepStats
from octavo.engine.history import History
from octavo.engine.request_times import ChoiceTimes, RequestTimes
from octavo.engine.request_tracer import RequestTracer

MODEL_LABEL = "model_name"
Metric = TypeVar("Metric", Counter, Gauge, Histogram)
SHORT_TIMES_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 10)
LONG_TIMES_S = (0.05, 0.1, 0.25, 0.5, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960)
TOKEN_COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)

GAUGES = {
    "num_requests_running": "Requests that have a row.",
    "num_requests_waiting": "Requests that wait for one.",
    "kv_cache_usage_perc": "Share of the KV blocks that requests hold, from 0 to 1.",
}
COUNTERS = {
    "prefix_cache_queries": "Prompt tokens looked up in the prefix cache.",
    "prefix_cache_hits": "Prompt tokens found there.",
    "num_preemptions": "Requests that gave up their blocks and waited again.",
    "prompt_tokens": "Prompt tokens of the requests that were answered.",
    "generation_tokens": "Tokens generated.",
    "spec_decode_num_drafts": "Runs of drafts that were verified.",
    "spec_decode_num_draft_tokens": "Drafts that were verified.",
    "spec_decode_num_accepted_tokens": "Drafts that were right.",
}
HISTOGRAMS = {
    "time_to_first_token_seconds": (LONG_TIMES_S, "From the door to the first token."),
    "inter_token_latency_seconds": (SHORT_TIMES_S, "From one token to the next."),
    "request_time_per_output_token_seconds": (SHORT_TIMES_S, "Mean of a request's inter-token latencies."),
    "e2e_request_latency_seconds": (LONG_TIMES_S, "From the door to the last token."),
    "request_queue_time_seconds": (LONG_TIMES_S, "From the door to the first step."),
    "request_prefill_time_seconds": (LONG_TIMES_S, "From the first step to the first token."),
    "request_decode_time_seconds": (LONG_TIMES_S, "From the first token to the last."),
    "request_prompt_tokens": (TOKEN_COUNTS, "Prompt tokens of a request."),
    "request_generation_tokens": (TOKEN_COUNTS, "Tokens generated for a choice."),
    "iteration_tokens_total": (TOKEN_COUNTS, "Tokens computed in a step."),
}


class EngineMetrics:
    """Counts for one model. Forget every request that is not seen to its end, or it is kept for ever."""

    def __init__(self, model_name: str, prefix: str = "octavo:", tracer: RequestTracer | None = None) -> None:
        self.history = History()
        self._registry = CollectorRegistry()
        self._model_name = model_name
        self._tracer = tracer

        def labelled(kind: type[Metric], name: str, text: str, *more_labels: str, **options: Any) -> Metric:
            return kind(prefix + name, text, [MODEL_LABEL, *more_labels], registry=self._registry, **options)

        self._gauges = {name: labelled(Gauge, name, text).labels(model_name) for name, text in GAUGES.items()}
        self._counters = {name: labelled(Counter, name, text).labels(model_name) for name, text in COUNTERS.items()}
        self._histograms = {
            name: labelled(Histogram, name, text, buckets=buckets).labels(model_name)
            for name, (buckets, text) in HISTOGRAMS.items()
        }
        self._ended = labelled(Counter, "request_success", "Choices that ended.", "finished_reason")
        self._rejected = labelled(Counter, "admission_rejections", "Requests refused.", "reason")
        self._accepted_at = labelled(
            Counter, "spec_decode_num_accepted_tokens_per_pos", "Drafts that were right, by their place.", "position"
        )
        self._stats = StepStats()
        self._times_by_id: dict[str, RequestTimes] = {}

    @property
    def num_requests(self) -> int:
        """Requests that are followed."""
        return len(self._times_by_id)

    def begin_process(self) -> None:
        """The totals of the stats begin at 0 again, as a new engine process counts them."""
        self._stats = StepStats()

    def render(self) -> bytes:
        """All of it in the text format 0.0.4."""
        return generate_latest(self._registry)

    def add_request(self, request: EngineRequest, traceparent: str = "") -> None:
        """A request is on its way to the core; `traceparent` is the span of its client, if that has one."""
        self._times_by_id[request.request_id] = RequestTimes(request, traceparent)

    def forget(self, request_id: str) -> None:
        """A request has ended, or is left alone. Unknown ids are ignored."""
        times = self._times_by_id.pop(request_id, None)
        if self._tracer and times:
            self._tracer.record(self._model_name, times)

    def count_rejection(self, reason: str) -> None:
        """A request was refused, by the code of its error."""
        self._rejected.labels(self._model_name, reason).inc()

    def take_stats(self, stats: StepStats) -> None:
        """The state after a step."""
        self._gauges["num_requests_running"].set(stats.num_running)
        self._gauges["num_requests_waiting"].set(stats.num_waiting)
        num_used = stats.num_blocks - stats.num_free_blocks
        self._gauges["kv_cache_usage_perc"].set(num_used / stats.num_blocks if stats.num_blocks else 0.0)
        before, self._stats = self._stats, stats
        self._counters["prefix_cache_queries"].inc(stats.num_prefix_queries_total - before.num_prefix_queries_total)
        self._counters["prefix_cache_hits"].inc(stats.num_prefix_hits_total - before.num_prefix_hits_total)
        self._counters["num_preemptions"].inc(stats.num_preemptions_total - before.num_preemptions_total)
        if stats.num_drafts_total > before.num_drafts_total:
            self._take_drafts(before, stats)
        if stats.num_tokens:
            self._histograms["iteration_tokens_total"].observe(stats.num_tokens)
            self.history.take_step(stats, time.monotonic())

    def _take_drafts(self, before: StepStats, stats: StepStats) -> None:
        self._counters["spec_decode_num_drafts"].inc(stats.num_drafts_total - before.num_drafts_total)
        num_draft_tokens = stats.num_draft_tokens_total - before.num_draft_tokens_total
        self._counters["spec_decode_num_draft_tokens"].inc(num_draft_tokens)
        old, new = before.num_accepted_tokens_per_pos_total, stats.num_accepted_tokens_per_pos_total
        for position, (earlier, later) in enumerate(zip_longest(old, new, fillvalue=0)):
            self._accepted_at.labels(self._model_name, str(position)).inc(later - earlier)
        self._counters["spec_decode_num_accepted_tokens"].inc(sum(new) - sum(old))

    def take_outputs(self, outputs: Iterable[RequestOutput], stopped: Sequence[tuple[str, int]]) -> None:
        """What a step brought; `stopped` are the (request_id, index) that a stop string ended."""
        now_s = time.monotonic()
        for output in outputs:
            times = self._times_by_id.get(output.request_id)
            if times is None:
                continue
            if output.new_token_ids:
                self._take_tokens(times, output, now_s)
            if output.finish_reason is not None:
                self._end(times, output.index, output.finish_reason)
        for request_id, index in stopped:
            if request_id in self._times_by_id:
                self._end(self._times_by_id[request_id], index, "stop")

    def _take_tokens(self, times: RequestTimes, output: RequestOutput, now_s: float) -> None:
        num_tokens = len(output.new_token_ids)
        self._counters["generation_tokens"].inc(num_tokens)
        choice = times.choice_by_index.get(output.index)
        if choice is None:
            if not times.choice_by_index:  # the choices share one prompt, and the first to come tells of it
                self._counters["prompt_tokens"].inc(len(times.request.prompt_token_ids))
                self._histograms["request_prompt_tokens"].observe(len(times.request.prompt_token_ids))
                times.scheduled_s = output.scheduled_s
            times.choice_by_index[output.index] = ChoiceTimes(now_s, now_s, num_tokens)
            self._histograms["time_to_first_token_seconds"].observe(now_s - times.arrival_s)
            self.history.take_first_tokens(num_tokens, now_s - times.arrival_s, now_s)
            if output.scheduled_s:
                self._histograms["request_queue_time_seconds"].observe(max(0.0, output.scheduled_s - times.arrival_s))
                self._histograms["request_prefill_time_seconds"].observe(max(0.0, now_s - output.scheduled_s))
        else:
            self._histograms["inter_token_latency_seconds"].observe(now_s - choice.last_s)
            self.history.take_next_tokens(num_tokens, now_s - choice.last_s, now_s)
            choice.last_s = now_s
            choice.num_tokens += num_tokens

    def _end(self, times: RequestTimes, index: int, finish_reason: str) -> None:
        times.finish_reason_by_index[index] = finish_reason
        self._ended.labels(self._model_name, finish_reason).inc()
        choice = times.choice_by_index.get(index)
        if choice is None or finish_reason not in ("stop", "length"):
            return
        self._histograms["e2e_request_latency_seconds"].observe(choice.last_s - times.arrival_s)
        self._histograms["request_generation_tokens"].observe(choice.num_tokens)
        decode_s = choice.last_s - choice.first_s
        self._histograms["request_decode_time_seconds"].observe(decode_s)
        if choice.num_tokens > 1:
            mean_s = decode_s / (choice.num_tokens - 1)
            self._histograms["request_time_per_output_token_seconds"].observe(mean_s)
