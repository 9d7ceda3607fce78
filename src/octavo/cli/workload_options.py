"""What a load is made of, as a command line says it. The names are those of `vllm bench serve`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from octavo.bench.workload import Workload


@dataclass(frozen=True, kw_only=True)
class LengthOptions:
    """How many requests there are, and how long."""

    num_prompts: Annotated[int, typer.Option(min=1, help="How many requests, of distributions or of a trace.")] = 100
    input_len: Annotated[str, typer.Option(help="Prompt tokens: 512, uniform:64,512 or lognormal:256,0.8.")] = "512"
    output_len: Annotated[str, typer.Option(help="Output tokens, in the same ways.")] = "128"
    trace: Annotated[Path | None, typer.Option(help="The requests of an Azure CSV or a Mooncake JSONL trace.")] = None
    max_input_len: Annotated[int | None, typer.Option(min=1, help="Cut a trace's prompts to this.")] = None
    max_output_len: Annotated[int | None, typer.Option(min=1, help="Cut a trace's outputs to this.")] = None
    seed: Annotated[int, typer.Option(help="The same seed gives the same requests.")] = 0

    def workload(self) -> Workload:
        """The requests. Raises ValueError and OSError for what cannot be read."""
        from octavo.bench.lengths import Lengths
        from octavo.bench.traces import read_trace
        from octavo.bench.workload import RandomWorkload, TraceWorkload

        if self.trace is None:
            lengths = Lengths.parse(self.input_len), Lengths.parse(self.output_len)
            return RandomWorkload(self.num_prompts, *lengths, seed=self.seed)
        trace = read_trace(self.trace, self.num_prompts)
        return TraceWorkload(trace, 1.0, self.max_input_len, self.max_output_len, self.seed)


@dataclass(frozen=True, kw_only=True)
class WorkloadOptions(LengthOptions):
    """And when they come, and what they share."""

    request_rate: Annotated[float, typer.Option(help="Requests a second, however the server does; inf: at once.")] = (
        math.inf
    )
    burstiness: Annotated[float, typer.Option(help="1: Poisson arrivals; below: burstier; inf: constant.")] = 1.0
    trace_speed: Annotated[float, typer.Option(help="How many times faster a trace is than it was recorded.")] = 1.0
    max_concurrency: Annotated[int | None, typer.Option(min=1, help="At most so many at once: a closed loop.")] = None
    prefix_len: Annotated[int, typer.Option(min=0, help="Prompt tokens that requests share.")] = 0
    num_prefixes: Annotated[int, typer.Option(min=1, help="How many different shared prefixes there are.")] = 1

    def workload(self) -> Workload:
        """What to send, and when. Raises ValueError and OSError for what cannot be read."""
        from octavo.bench.workload import TraceWorkload

        for name in ("request_rate", "burstiness", "trace_speed"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")
        workload = super().workload()
        if isinstance(workload, TraceWorkload):
            return replace(workload, speed=self.trace_speed)
        return replace(
            workload,
            prefix_len=self.prefix_len,
            num_prefixes=self.num_prefixes,
            request_rate=self.request_rate,
            burstiness=self.burstiness,
        )
