"""A span for each request, as a collector of OpenTelemetry would get it."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from octavo.config import EngineConfig
from octavo.engine import async_engine
from octavo.engine.async_engine import AsyncEngine
from octavo.engine.request_tracer import RequestTracer

pytestmark = pytest.mark.anyio

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"
BODY = {"prompt": "Hi", "max_tokens": 50, "temperature": 0.5, "n": 2}


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
async def engine(core, tiny_model, monkeypatch, exporter):
    monkeypatch.setattr(async_engine, "CoreClient", core)
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    engine = AsyncEngine(EngineConfig(str(tiny_model)), tracer=RequestTracer(provider))
    await engine.start()
    core.become_ready()
    await engine.wait_until_ready()
    yield engine
    await engine.close()


async def test_a_span_says_what_a_request_was_and_took(client, exporter):
    answer = (await client.post("/v1/completions", json=BODY, headers={"traceparent": TRACEPARENT})).json()
    [span] = exporter.get_finished_spans()
    attributes = dict(span.attributes)
    assert (span.name, span.kind) == ("llm_request", SpanKind.SERVER)
    assert f"{span.context.trace_id:032x}" == TRACE_ID and f"{span.parent.span_id:016x}" == "00f067aa0ba902b7"
    assert attributes["gen_ai.usage.prompt_tokens"] == answer["usage"]["prompt_tokens"]
    assert attributes["gen_ai.usage.completion_tokens"] == answer["usage"]["completion_tokens"]
    assert attributes["gen_ai.response.finish_reasons"] == ("stop", "stop")
    assert (attributes["gen_ai.request.n"], attributes["gen_ai.request.max_tokens"]) == (2, 50)
    assert attributes["gen_ai.response.model"] == "tiny"
    assert attributes["gen_ai.latency.e2e"] == pytest.approx((span.end_time - span.start_time) / 1e9, abs=0.1)


async def test_one_that_was_left_has_a_span_of_its_own(core, client: httpx.AsyncClient, exporter):
    core.is_holding = True
    task = asyncio.create_task(client.post("/v1/completions", json=BODY))
    while not core.requests:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    [span] = exporter.get_finished_spans()
    assert span.parent is None and span.attributes["gen_ai.response.finish_reasons"] == ("abort", "abort")
