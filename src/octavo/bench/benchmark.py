"""One benchmark of a server, from the question which model it has to the outcomes of a load."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from octavo.bench.completion_client import CompletionClient
from octavo.bench.http_client import HttpError, Server
from octavo.bench.load import run_load
from octavo.bench.outcome import Outcome
from octavo.bench.prompts import TokenLine
from octavo.bench.workload import Workload

WARMUP_SEED = 1_000_003  # added to the seed: prompts of their own, so that no cache knows those that count


@dataclass(frozen=True, slots=True)
class Settings:
    """How a server is asked."""

    model: str | None = None  # None: the first that the server lists
    endpoint: str = "completions"
    ignore_eos: bool = True
    num_warmups: int = 2
    max_concurrency: int | None = None


class Target(NamedTuple):
    """A model of a server that answers."""

    client: CompletionClient
    line: TokenLine
    about: dict[str, Any]  # the server's own words on the model and on itself


async def find_target(server: Server, settings: Settings) -> Target:
    """Ask the server what it is and how it counts tokens. Raises HttpError, OSError and ValueError."""
    models = (await server.get_json("/v1/models"))["data"]
    served_by_id = {entry["id"]: entry for entry in models}
    model = settings.model or next(iter(served_by_id), "")
    client = CompletionClient(server, model, endpoint=settings.endpoint, ignore_eos=settings.ignore_eos)
    line = await client.token_line()
    return Target(client, line, {"model": served_by_id.get(model, {"id": model}), "version": await _version(server)})


async def measure(
    target: Target, workload: Workload, settings: Settings, on_end: Callable[[Outcome], None] = lambda outcome: None
) -> list[Outcome]:
    """Warm the server up, then put the workload on it."""
    warmups = replace(workload, seed=workload.seed + WARMUP_SEED).requests(target.line)[: settings.num_warmups]
    await run_load(target.client, [request._replace(arrival_s=0.0) for request in warmups])
    requests = workload.requests(target.line)
    return await run_load(target.client, requests, max_concurrency=settings.max_concurrency, on_end=on_end)


def client_machine() -> dict[str, Any]:
    """The machine that this runs on; where the server is on it too, the load takes time from it."""
    return {"cpu": platform.processor() or platform.machine(), "num_cpus": os.cpu_count(), "os": platform.platform()}


async def _version(server: Server) -> str | None:
    """What the server says to be; None where it does not say."""
    try:
        return str((await server.get_json("/version"))["version"])
    except (HttpError, KeyError, TypeError, ValueError):
        return None
