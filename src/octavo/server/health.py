"""GET endpoints that say how the server is: probes, health, load, version."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

import octavo
from octavo.engine.engine_status import EngineState, EngineStatus
from octavo.server.json_response import json_response
from octavo.server.serving import serving_of


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why the engine takes no requests."""

    status: str
    phase: str = ""
    elapsed_s: float = 0.0
    message: str = ""


class Version(msgspec.Struct, frozen=True):
    """octavo's version."""

    version: str


async def get_health(request: Request) -> Response:
    """200 and nothing while requests are welcome; else 503 and why."""
    status = serving_of(request).engine.status
    return Response(status_code=200) if status.state is EngineState.READY else _health(status)


async def get_livez(request: Request) -> Response:
    """200 while there is hope: while the engine loads, serves or drains; 503 once it is dead."""
    status = serving_of(request).engine.status
    return _health(status) if status.state is EngineState.DEAD else Response(status_code=200)


async def get_startupz(request: Request) -> Response:
    """200 once the engine has started, whatever came then; until then 503, and what it is busy with."""
    status = serving_of(request).engine.status
    return _health(status) if status.state is EngineState.LOADING else Response(status_code=200)


async def get_load(request: Request) -> Response:
    """The engine's state after its last step, as StepStats has it."""
    return json_response(serving_of(request).engine.stats)


async def get_metrics(request: Request) -> Response:
    """Counts, gauges and histograms for Prometheus, under vLLM's names."""
    media_type = "text/plain; version=0.0.4; charset=utf-8"
    return Response(serving_of(request).engine.render_metrics(), media_type=media_type)


async def get_tables(request: Request) -> Response:
    """How many entries each table has for requests under way; all are 0 when there is none. For finding leaks."""
    return json_response(await serving_of(request).engine.table_sizes())


async def get_version(_: Request) -> Response:
    """The version."""
    return json_response(Version(octavo.__version__))


async def get_root(_: Request) -> Response:
    """200 for whoever only asks whether something listens."""
    return Response(status_code=200)


def _health(status: EngineStatus) -> Response:
    health = Health(status.state.value, status.phase, round(status.elapsed_s, 3), status.message)
    return json_response(health, 503)
