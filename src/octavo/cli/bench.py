"""octavo bench: a load on a server, and what it costs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.failure import exit_on
from octavo.cli.workload_options import WorkloadOptions

if TYPE_CHECKING:
    from octavo.bench.benchmark import Settings, Target
    from octavo.bench.draft_counts import DraftCounts
    from octavo.bench.http_client import Server
    from octavo.bench.outcome import Outcome


@dataclass(frozen=True, kw_only=True)
class BenchOptions(WorkloadOptions):
    """What `octavo bench serve` can be told. The names are those of `vllm bench serve`."""

    base_url: Annotated[str, typer.Option(help="The server, with or without /v1 at its end.")] = "http://127.0.0.1:8000"
    model: Annotated[str | None, typer.Option(help="By default the first that the server lists.")] = None
    endpoint: Annotated[str, typer.Option(help="completions or chat.")] = "completions"
    api_key: Annotated[str | None, typer.Option(envvar="OPENAI_API_KEY", help="Sent as a bearer token.")] = None
    num_warmups: Annotated[int, typer.Option(min=0, help="Requests sent before, whose times do not count.")] = 2
    ignore_eos: Annotated[bool, typer.Option(help="Generate all tokens asked for, past any end.")] = True
    goodput: Annotated[list[str] | None, typer.Option(help="An objective in ms, such as ttft:500; repeatable.")] = None
    save_result: Annotated[Path | None, typer.Option(help="Append the result to this file, as a line of JSON.")] = None

    def server(self) -> Server:
        """Whom to ask. Raises ValueError for a base URL that is none."""
        from octavo.bench.http_client import Server

        return Server.parse(self.base_url, {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {})

    def about(self, target: Target) -> dict[str, Any]:
        """What a result needs beside it."""
        from octavo.bench.benchmark import client_machine

        asked = {name: value for name, value in asdict(self).items() if name != "api_key"}
        return {"server": target.about, "client": client_machine(), "settings": asked}

    def settings(self) -> Settings:
        """How to ask. Raises ValueError for an endpoint that there is not."""
        from octavo.bench.benchmark import Settings
        from octavo.bench.completion_client import PATH_BY_ENDPOINT

        if self.endpoint not in PATH_BY_ENDPOINT:
            raise ValueError(f"the endpoint is {self.endpoint!r}; it must be one of {', '.join(PATH_BY_ENDPOINT)}")
        return Settings(self.model, self.endpoint, self.ignore_eos, self.num_warmups, self.max_concurrency)


def bench(options: BenchOptions) -> None:
    """Load a running server and print throughput and latencies. Works with any server of the OpenAI API."""
    from octavo.bench.http_client import HttpError
    from octavo.bench.report import parse_objective, summarize

    with exit_on(HttpError, OSError, ValueError):
        objective_ms = parse_objective(options.goodput or [])
        about, outcomes, drafts = asyncio.run(_measure(options))
    report = replace(summarize(outcomes, objective_ms), drafts=drafts)
    typer.echo(report.render())
    if options.save_result is not None:
        with options.save_result.open("a") as file:
            file.write(json.dumps(about | {"report": report.to_json()}, default=str) + "\n")
    if report.num_failed:
        raise typer.Exit(1)


async def _measure(options: BenchOptions) -> tuple[dict[str, Any], list[Outcome], DraftCounts | None]:
    from octavo.bench.benchmark import find_target, measure
    from octavo.bench.draft_counts import DraftCounts

    workload, settings, server = options.workload(), options.settings(), options.server()
    target = await find_target(server, settings)
    drafts_before = await DraftCounts.read(server)
    with progress_bar(options.num_prompts) as on_end:
        outcomes = await measure(target, workload, settings, on_end)
    drafts = await DraftCounts.read(server)
    return options.about(target), outcomes, drafts.since(drafts_before)


@contextmanager
def progress_bar(num_requests: int) -> Iterator[Callable[[Outcome], None]]:
    """A bar on the terminal that grows with each request."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("requests"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("requests", total=num_requests)
        yield lambda outcome: progress.advance(task)
