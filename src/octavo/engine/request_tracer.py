"""RequestTracer: a span of OpenTelemetry for each request. Needs the extra: pip install 'octavo[otel]'."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from octavo.engine.request_times import RequestTimes

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

NS = 1_000_000_000


class RequestTracer:
    """Spans named `llm_request`, from door to end, with vLLM's attributes. Close it, or the last are lost."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("octavo")

    @classmethod
    def connect(cls, endpoint: str) -> RequestTracer:
        """One that sends to a collector that speaks OTLP over HTTP; a thread does, and drops what it cannot send.

        Raises ImportError, and what to install, where the extra is missing.
        """
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise ImportError(f"traces need more than is installed ({error}); pip install 'octavo[otel]'") from error
        provider = TracerProvider(resource=Resource.create({"service.name": "octavo"}))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))
        return cls(provider)

    def record(self, model_name: str, times: RequestTimes) -> None:
        """The span of a request that has ended, in whatever way; its parent is the client's, if that has sent one."""
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        ended_s = time.monotonic()
        start_ns = time.time_ns() - int((ended_s - times.arrival_s) * NS)
        span = self._tracer.start_span(
            "llm_request",
            context=TraceContextTextMapPropagator().extract({"traceparent": times.traceparent}),
            kind=SpanKind.SERVER,
            attributes=_attributes(model_name, times, ended_s),
            start_time=start_ns,
        )
        span.end()

    def close(self) -> None:
        """Send what is still here."""
        self._provider.shutdown()


def _attributes(model_name: str, times: RequestTimes, ended_s: float) -> dict[str, Any]:
    request, params = times.request, times.request.sampling_params
    attributes: dict[str, Any] = {
        "gen_ai.response.model": model_name,
        "gen_ai.request.id": request.request_id,
        "gen_ai.request.n": params.n,
        "gen_ai.request.temperature": params.temperature,
        "gen_ai.request.top_p": params.top_p,
        "gen_ai.usage.prompt_tokens": len(request.prompt_token_ids),
        "gen_ai.usage.completion_tokens": sum(choice.num_tokens for choice in times.choice_by_index.values()),
        "gen_ai.latency.e2e": ended_s - times.arrival_s,
        "gen_ai.response.finish_reasons": [
            times.finish_reason_by_index.get(index, "abort") for index in range(params.n)
        ],
    }
    if params.max_tokens is not None:
        attributes["gen_ai.request.max_tokens"] = params.max_tokens
    if times.scheduled_s and times.choice_by_index:
        first_s = min(choice.first_s for choice in times.choice_by_index.values())
        last_s = max(choice.last_s for choice in times.choice_by_index.values())
        attributes["gen_ai.latency.time_in_queue"] = max(0.0, times.scheduled_s - times.arrival_s)
        attributes["gen_ai.latency.time_to_first_token"] = first_s - times.arrival_s
        attributes["gen_ai.latency.time_in_model_prefill"] = first_s - times.scheduled_s
        attributes["gen_ai.latency.time_in_model_decode"] = last_s - first_s
        attributes["gen_ai.latency.time_in_model_inference"] = last_s - times.scheduled_s
    return attributes
