"""octavo bench sweep: growing load on a server, the curves, and their knee."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.bench import BenchOptions, progress_bar
from octavo.cli.failure import exit_on

if TYPE_CHECKING:
    from octavo.bench.sweep import SweepPoint


@dataclass(frozen=True, kw_only=True)
class SweepOptions(BenchOptions):
    """What `octavo bench sweep` can be told. Each point sends `num_prompts` requests."""

    vary: Annotated[str, typer.Option(help="concurrency (a closed loop) or rate (an open one).")] = "concurrency"
    values: Annotated[str, typer.Option(help="The loads, in growing order.")] = "1,2,4,8,16,32,64"
    output_dir: Annotated[Path, typer.Option(help="Where the page, the charts and the figures go.")] = Path("sweep")


def sweep(options: SweepOptions) -> None:
    """Measure a running server at growing load; write a page with the curves, and name their knee."""
    from octavo.bench.http_client import HttpError
    from octavo.bench.sweep_report import knee_sentence, latency_chart, render_page, throughput_chart

    with exit_on(HttpError, OSError, ValueError):
        about, points = asyncio.run(_measure(options))
    content_by_name = {
        "index.html": render_page(options.vary, points, about),
        "throughput.svg": throughput_chart(options.vary, points),
        "ttft.svg": latency_chart(options.vary, points, "ttft", "Time to first token"),
        "itl.svg": latency_chart(options.vary, points, "itl", "Inter-token latency"),
        "points.json": json.dumps(about | {"points": [point.to_json() for point in points]}, indent=1, default=str),
    }
    options.output_dir.mkdir(parents=True, exist_ok=True)
    for name, content in content_by_name.items():
        (options.output_dir / name).write_text(content)
    typer.echo(knee_sentence(options.vary, points))
    typer.echo(f"see {options.output_dir / 'index.html'}")


async def _measure(options: SweepOptions) -> tuple[dict[str, Any], list[SweepPoint]]:
    from octavo.bench.benchmark import find_target, measure
    from octavo.bench.report import parse_objective, summarize
    from octavo.bench.sweep import SweepPoint, at_load, parse_loads

    loads, objective_ms = parse_loads(options.vary, options.values), parse_objective(options.goodput or [])
    workload = options.workload()
    target = await find_target(options.server(), options.settings())
    points = []
    for load in loads:
        point_workload, settings = at_load(options.vary, load, workload, options.settings())
        with progress_bar(options.num_prompts) as on_end:
            outcomes = await measure(target, point_workload, settings, on_end)
        report = summarize(outcomes, objective_ms)
        points.append(SweepPoint(load, report))
        typer.echo(f"{options.vary} {load:g}\n{report.render()}\n")
    return options.about(target), points
