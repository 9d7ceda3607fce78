"""octavo bench: a load on a server, and what it costs."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from octavo.bench.benchmark import Settings, Target
    from octavo.bench.http_client import Server
    from octavo.bench.outcome import Outcome
    from octavo.bench.workload import Workload


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """What `octavo bench serve` can be told. The names are those of `vllm bench serve`."""

    base_url: Annotated[str, typer.Option(help="The server, with or without /v1 at its end.")] = "http://127.0.0.1:8000"
    model: Annotated[str | None, typer.Option(help="By default the first that the server lists.")] = None
    endpoint: Annotated[str, typer.Option(help="completions or chat.")] = "completions"
    api_key: Annotated[str | None, typer.Option(envvar="OPENAI_API_KEY", help="Sent as a bearer token.")] = None
    num_prompts: Annotated[int, typer.Option(min=1, help="Requests to send, or to take from a trace.")] = 100
    num_warmups: Annotated[int, typer.Option(min=0, help="Requests sent before, whose times do not count.")] = 2
    request_rate: Annotated[float, typer.Option(help="Requests a second, however the server does; inf: at once.")] = (
        math.inf
    )
    burstiness: Annotated[float, typer.Option(help="1: Poisson arrivals; below: burstier; inf: constant.")] = 1.0
    max_concurrency: Annotated[int | None, typer.Option(min=1, help="At most so many at once: a closed loop.")] = None
    input_len: Annotated[str, typer.Option(help="Prompt tokens: 512, uniform:64,512 or lognormal:256,0.8.")] = "512"
    output_len: Annotated[str, typer.Option(help="Output tokens, in the same ways.")] = "128"
    prefix_len: Annotated[int, typer.Option(min=0, help="Prompt tokens that requests share.")] = 0
    num_prefixes: Annotated[int, typer.Option(min=1, help="How many different shared prefixes there are.")] = 1
    trace: Annotated[Path | None, typer.Option(help="Replay an Azure CSV or a Mooncake JSONL trace instead.")] = None
    trace_speed: Annotated[float, typer.Option(help="How many times faster than it was recorded.")] = 1.0
    max_input_len: Annotated[int | None, typer.Option(min=1, help="Cut a trace's prompts to this.")] = None
    max_output_len: Annotated[int | None, typer.Option(min=1, help="Cut a trace's outputs to this.")] = None
    ignore_eos: Annotated[bool, typer.Option(help="Generate all tokens asked for, past any end.")] = True
    goodput: Annotated[list[str] | None, typer.Option(help="An objective in ms, such as ttft:500; repeatable.")] = None
    seed: Annotated[int, typer.Option(help="The same seed gives the same requests.")] = 0
    save_result: Annotated[Path | None, typer.Option(help="Append the result to this file, as a line of JSON.")] = None

    def workload(self) -> Workload:
        """What to send. Raises ValueError and OSError for what cannot be read."""
        from octavo.bench.lengths import Lengths
        from octavo.bench.traces import read_trace
        from octavo.bench.workload import RandomWorkload, TraceWorkload

        for name in ("request_rate", "burstiness", "trace_speed"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")
        if self.trace is not None:
            trace = read_trace(self.trace, self.num_prompts)
            return TraceWorkload(trace, self.trace_speed, self.max_input_len, self.max_output_len, self.seed)
        return RandomWorkload(
            num_requests=self.num_prompts,
            input_len=Lengths.parse(self.input_len),
            output_len=Lengths.parse(self.output_len),
            prefix_len=self.prefix_len,
            num_prefixes=self.num_prefixes,
            request_rate=self.request_rate,
            burstiness=self.burstiness,
            seed=self.seed,
        )

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

    try:
        objective_ms = parse_objective(options.goodput or [])
        about, outcomes = asyncio.run(_measure(options))
    except (HttpError, OSError, ValueError) as error:
        typer.echo(f"octavo: {error}", err=True)
        raise typer.Exit(1) from None
    report = summarize(outcomes, objective_ms)
    typer.echo(report.render())
    if options.save_result is not None:
        with options.save_result.open("a") as file:
            file.write(json.dumps(about | {"report": report.to_json()}, default=str) + "\n")
    if report.num_failed:
        raise typer.Exit(1)


async def _measure(options: BenchOptions) -> tuple[dict[str, Any], list[Outcome]]:
    from octavo.bench.benchmark import find_target, measure

    workload, settings = options.workload(), options.settings()
    target = await find_target(options.server(), settings)
    with progress_bar(options.num_prompts) as on_end:
        outcomes = await measure(target, workload, settings, on_end)
    return options.about(target), outcomes


@contextmanager
def progress_bar(num_requests: int) -> Iterator[Callable[[Outcome], None]]:
    """A bar on the terminal that grows with each request."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("requests"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("requests", total=num_requests)
        yield lambda outcome: progress.advance(task)
