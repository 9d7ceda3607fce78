"""octavo simulate: a load on an engine that is not there."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.failure import exit_on
from octavo.cli.workload_options import WorkloadOptions

if TYPE_CHECKING:
    from octavo.bench.workload import Workload
    from octavo.planning.prediction import MeasuredLoad, Prediction
    from octavo.sim.batching import BatchingPolicy
    from octavo.sim.cost_model import CostModel
    from octavo.sim.engine_settings import EngineSettings

KV_LAYOUTS = ("paged", "contiguous")


@dataclass(frozen=True, kw_only=True)
class SimulateOptions(WorkloadOptions):
    """What `octavo simulate` can be told. The names are those of `octavo serve` and `octavo bench`."""

    cost: Annotated[Path | None, typer.Option(help="What steps cost: a file that --fit wrote.")] = None
    fit: Annotated[
        Path | None,
        typer.Option(help="Fit the costs to what `octavo serve --step-log` wrote, into --cost."),
    ] = None
    fit_result: Annotated[
        Path | None,
        typer.Option(help="And what requests take outside of steps, to a light load: its bench serve --save-result."),
    ] = None
    num_blocks: Annotated[
        int | None, typer.Option(min=1, help="KV blocks of 16 tokens; by default as many as all rows can use.")
    ] = None
    max_num_seqs: Annotated[int, typer.Option(min=1, help="Requests that run at once.")] = 64
    max_num_batched_tokens: Annotated[int, typer.Option(min=1, help="Tokens computed in one step.")] = 512
    max_model_len: Annotated[int, typer.Option(min=2, help="Tokens of prompt and output together.")] = 2048
    enable_prefix_caching: Annotated[
        bool,
        typer.Option("--enable-prefix-caching/--no-enable-prefix-caching", help="Reuse the KV of shared prefixes."),
    ] = True
    policy: Annotated[str, typer.Option(help="continuous, static, or both: continuous,static.")] = "continuous"
    kv: Annotated[str, typer.Option(help="paged, contiguous, or both: paged,contiguous.")] = "paged"
    vary: Annotated[str, typer.Option(help="With --values: concurrency or rate.")] = "concurrency"
    values: Annotated[str | None, typer.Option(help="Simulate each of these loads, and name the knee.")] = None
    goodput: Annotated[list[str] | None, typer.Option(help="An objective in ms, such as ttft:500; repeatable.")] = None
    timeline: Annotated[
        bool, typer.Option("--timeline", help="Draw six requests on four slots, batched both ways, and nothing else.")
    ] = False
    svg: Annotated[Path | None, typer.Option(help="Write the timeline to this file, too.")] = None

    def engine_settings(self, kv: str) -> EngineSettings:
        """The simulated engine."""
        from octavo.config import BLOCK_SIZE
        from octavo.sim.engine_settings import EngineSettings

        return EngineSettings(
            num_blocks=self.num_blocks or self.max_num_seqs * -(-self.max_model_len // BLOCK_SIZE),
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_model_len=self.max_model_len,
            enable_prefix_caching=self.enable_prefix_caching,
            is_contiguous=kv == "contiguous",
        )

    def cost_model(self) -> CostModel:
        """What a step costs. Raises ValueError and OSError for a file that cannot be read."""
        from octavo.planning.step_costs import read_cost_model

        if self.cost is None:
            raise ValueError(
                "nothing says what a step costs: run `octavo serve MODEL --step-log steps.jsonl` under a load, then "
                "`octavo simulate --fit steps.jsonl --cost cost.json`, and give --cost cost.json"
            )
        return read_cost_model(self.cost)


def simulate(options: SimulateOptions) -> None:
    """Predict throughput and latencies of a load: the real scheduler, over costs fitted to this machine."""
    with exit_on(OSError, ValueError):
        if options.timeline:
            _draw_timeline(options)
        elif options.fit is not None:
            _fit(options, options.fit)
        elif options.values is not None:
            _sweep(options, options.values)
        else:
            _compare(options)


def _draw_timeline(options: SimulateOptions) -> None:
    from octavo.planning.worked_example import worked_example
    from octavo.sim.timeline import draw, render_beside

    timelines = worked_example()
    typer.echo(render_beside(timelines, max_chars=60))
    if options.svg is not None:
        options.svg.write_text(draw(timelines, "steps, each of which gives a token to every request in a slot"))


def _fit(options: SimulateOptions, path: Path) -> None:
    from octavo.planning.prediction import fit_request_s
    from octavo.planning.step_costs import FitQuality, read_steps, write_cost_model
    from octavo.sim.cost_model import CostModel

    steps = read_steps(path)
    cost_model = CostModel.fit(steps)
    if options.fit_result is not None:
        loads = read_results(options.fit_result)
        cost_model = replace(cost_model, request_s=fit_request_s(cost_model, options.engine_settings("paged"), loads))
    typer.echo(FitQuality.of(cost_model, steps).render())
    for name, seconds in asdict(cost_model).items():
        typer.echo(f"{name:<12}{1e6 * seconds:12.3f} us")
    if options.cost is not None:
        write_cost_model(options.cost, cost_model)


def read_results(path: Path) -> list[MeasuredLoad]:
    """The loads whose results `octavo bench serve --save-result` wrote. Raises ValueError for another file."""
    from octavo.planning.prediction import MeasuredLoad

    loads = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            result = json.loads(line)
            asked = {field.name: result["settings"][field.name] for field in fields(WorkloadOptions)}
            asked["trace"] = asked["trace"] and Path(asked["trace"])
            mean_ttft_ms = float(result["report"]["ttft"]["mean_ms"])
            loads.append(MeasuredLoad(WorkloadOptions(**asked).workload(), asked["max_concurrency"], mean_ttft_ms))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}, line {number} is not what --save-result writes: {error!r}") from None
    if not loads:
        raise ValueError(f"{path} holds no result; write one with `octavo bench serve --save-result`")
    return loads


def _sweep(options: SimulateOptions, values: str) -> None:
    """The same engine at growing load."""
    from octavo.bench.benchmark import Settings
    from octavo.bench.sweep import SweepPoint, at_load, parse_loads
    from octavo.bench.sweep_report import knee_sentence
    from octavo.planning.comparison import render

    settings = Settings(max_concurrency=options.max_concurrency)
    prediction_by_load = {}
    for load in parse_loads(options.vary, values):
        workload, at_point = at_load(options.vary, load, options.workload(), settings)
        prediction_by_load[load] = _predict(options, workload, options.policy, options.kv, at_point.max_concurrency)
    typer.echo(render({f"{options.vary} {load:g}": made for load, made in prediction_by_load.items()}))
    points = [SweepPoint(load, made.report) for load, made in prediction_by_load.items()]
    typer.echo(knee_sentence(options.vary, points))


def _compare(options: SimulateOptions) -> None:
    """The same load on each engine that --policy and --kv name."""
    from octavo.planning.comparison import render

    prediction_by_name = {
        f"{policy}, {kv}": _predict(options, options.workload(), policy, kv, options.max_concurrency)
        for policy, kv in product(options.policy.split(","), options.kv.split(","))
    }
    if len(prediction_by_name) == 1:
        [prediction] = prediction_by_name.values()
        typer.echo(prediction.report.render() + "\n")
    typer.echo(render(prediction_by_name))


def _predict(
    options: SimulateOptions, workload: Workload, policy: str, kv: str, max_concurrency: int | None
) -> Prediction:
    from octavo.bench.report import parse_objective
    from octavo.planning.prediction import predict
    from octavo.sim.batching import ContinuousBatching, StaticBatching

    batching: dict[str, BatchingPolicy] = {
        "continuous": ContinuousBatching(),
        "static": StaticBatching(options.max_num_seqs),
    }
    for what, value, known in (("policy", policy, batching), ("kv", kv, KV_LAYOUTS)):
        if value not in known:
            raise ValueError(f"{what} is {value!r}; choose of {', '.join(known)}, several with a comma between them")
    return predict(
        workload,
        options.engine_settings(kv),
        options.cost_model(),
        batching=batching[policy],
        max_concurrency=max_concurrency,
        objective_ms=parse_objective(options.goodput or []),
    )
