"""octavo bench latency and throughput: a model measured in this process, without a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.failure import exit_on
from octavo.cli.options import EngineOptions
from octavo.cli.workload_options import LengthOptions

if TYPE_CHECKING:
    from octavo.bench.report import Report
    from octavo.bench.workload import RandomWorkload, Workload
    from octavo.engine.build import BuiltEngine

WARMUP_LENS = 64, 4  # of the first request, which finds buffers to be made and pages to be touched
WARMUP_SEED = 1_000_003


@dataclass(frozen=True, kw_only=True)
class ThroughputOptions(LengthOptions, EngineOptions):
    """What `octavo bench throughput` can be told: the engine, and the requests."""


@dataclass(frozen=True, kw_only=True)
class LatencyOptions(EngineOptions):
    """What `octavo bench latency` can be told besides. The names are those of `vllm bench latency`."""

    batch_size: Annotated[int, typer.Option(min=1, help="Requests that are sent together.")] = 8
    input_len: Annotated[int, typer.Option(min=1, help="Prompt tokens of each.")] = 32
    output_len: Annotated[int, typer.Option(min=1, help="Output tokens of each.")] = 128
    num_iters: Annotated[int, typer.Option(min=1, help="How many batches, one after the other.")] = 5


def bench_throughput(options: ThroughputOptions) -> None:
    """Run requests that are all there at once through a model in this process; print throughput and latencies."""
    with _open(options) as engine:
        typer.echo(_run(engine, options.workload()).render())


def bench_latency(options: LatencyOptions) -> None:
    """Run batches of equal requests through a model in this process; print how long a batch takes."""
    from octavo.bench.report import Latency

    with _open(options) as engine:
        reports = [
            _run(engine, _batch(options.batch_size, options.input_len, options.output_len, number))
            for number in range(options.num_iters)
        ]
    latency = Latency.of([report.duration_s for report in reports])
    assert latency is not None
    num_tokens = options.batch_size * options.output_len
    typer.echo(f"a batch: {options.batch_size} requests of {options.input_len} tokens, {options.output_len} out each")
    typer.echo(f"output throughput     {1000 * num_tokens / latency.mean_ms:10.1f} tokens/s")
    typer.echo("batch latency, ms           mean       p50       p95       p99       max")
    typer.echo(" " * 22 + "".join(f"{figure:10.1f}" for figure in asdict(latency).values()))


@contextmanager
def _open(options: EngineOptions) -> Iterator[BuiltEngine]:
    """The engine, warm. Exits with what is wrong where it cannot be built or cannot serve the requests."""
    from octavo.engine.build import build_engine
    from octavo.weights.checkpoint import open_checkpoint
    from octavo.weights.source import CheckpointError

    config = options.engine_config()
    with exit_on(CheckpointError, OSError, ValueError):
        engine = build_engine(config, open_checkpoint(config.model))
        try:
            _run(engine, _batch(1, *WARMUP_LENS, WARMUP_SEED))
            yield engine
        finally:
            engine.core.close()
            engine.grammars.close()


def _run(engine: BuiltEngine, workload: Workload) -> Report:
    """Put a load on the engine itself."""
    from octavo.bench.report import summarize
    from octavo.planning.prediction import ONE_TOKEN_A_WORD, engine_requests, outcomes
    from octavo.sim.clock import WallClock
    from octavo.sim.replay import Replay

    load = [request._replace(arrival_s=0.0) for request in workload.requests(ONE_TOKEN_A_WORD)]
    requests = engine_requests(load, first_token_id=engine.vocab_size // 2)
    replay = Replay(engine.core, WallClock(), max_num_seqs=engine.config.max_num_seqs)
    return summarize(outcomes(requests, replay.run(requests)))


def _batch(num_requests: int, input_len: int, output_len: int, seed: int) -> RandomWorkload:
    """Requests of these lengths; those of another seed have other prompts."""
    from octavo.bench.lengths import Lengths
    from octavo.bench.workload import RandomWorkload

    return RandomWorkload(num_requests, Lengths("fixed", input_len), Lengths("fixed", output_len), seed=seed)
