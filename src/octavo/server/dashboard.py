"""GET /dashboard: the engine at work, on a page; GET /dashboard/data: what the page draws."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

import octavo
from octavo.core.messages import StepStats
from octavo.core.snapshot import Snapshot
from octavo.engine.history import Curves, StepMark
from octavo.server.json_response import json_response
from octavo.server.serving import serving_of

PAGE = Path(__file__).with_name("dashboard.html")


class DashboardData(msgspec.Struct, frozen=True):
    """Counts, times and ids of the engine's own: no text, and nothing of who asks."""

    model: str
    version: str
    max_num_seqs: int
    stats: StepStats
    snapshot: Snapshot
    curves: Curves
    steps: list[StepMark]  # the last ones, oldest first; `ended_s` is how long ago, so it is 0 or below


async def get_dashboard(_: Request) -> Response:
    """The engine at work, on a page, which reads /dashboard/data and nothing from elsewhere."""
    return HTMLResponse(PAGE.read_text())


async def get_dashboard_data(request: Request) -> Response:
    """What the page draws: requests, KV blocks, the last minutes and the last steps. Waits for the end of a step."""
    serving = serving_of(request)
    engine = serving.engine
    snapshot = await engine.inspect()
    config, history, now_s = engine.ready.config, engine.history, time.monotonic()
    data = DashboardData(
        model=serving.model_names[0],
        version=octavo.__version__,
        max_num_seqs=config.max_num_seqs,
        stats=engine.stats,
        snapshot=snapshot,
        curves=history.curves(now_s),
        steps=[
            step._replace(ended_s=round(step.ended_s - now_s, 4), step_s=round(step.step_s, 4))
            for step in history.steps
        ],
    )
    return json_response(data)
