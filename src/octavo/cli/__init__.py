"""The terminal commands; `octavo --help` lists them."""

from __future__ import annotations

import typer

from octavo.cli.bench import BenchOptions, bench
from octavo.cli.chat import ChatOptions, chat
from octavo.cli.doctor import doctor
from octavo.cli.generate import GenerateOptions, generate
from octavo.cli.list_options import ListOptionsCommand
from octavo.cli.offline_bench import LatencyOptions, ThroughputOptions, bench_latency, bench_throughput
from octavo.cli.options import command
from octavo.cli.plan import PlanOptions, plan
from octavo.cli.quantize import QuantizeOptions, quantize
from octavo.cli.run_batch import RunBatchOptions, run_batch
from octavo.cli.serve import ServeOptions, serve
from octavo.cli.simulate import SimulateOptions, simulate
from octavo.cli.sweep import SweepOptions, sweep


def main() -> None:
    """Run the command that the command line names."""
    app = typer.Typer(
        help="Serve large language models. The same request gives the same bytes, whoever else is being served.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.command("serve", cls=ListOptionsCommand)(command(ServeOptions, serve))
    app.command("generate")(command(GenerateOptions, generate))
    app.command("chat")(command(ChatOptions, chat))
    app.command("run-batch")(command(RunBatchOptions, run_batch))
    app.command("plan")(command(PlanOptions, plan))
    app.command("simulate")(command(SimulateOptions, simulate))
    app.command("quantize")(command(QuantizeOptions, quantize))
    app.command("doctor")(doctor)
    measuring = typer.Typer(
        help="Measure a server, or a model without one: what it carries, and what that costs.", no_args_is_help=True
    )
    measuring.command("serve")(command(BenchOptions, bench))
    measuring.command("sweep")(command(SweepOptions, sweep))
    measuring.command("latency")(command(LatencyOptions, bench_latency))
    measuring.command("throughput")(command(ThroughputOptions, bench_throughput))
    app.add_typer(measuring, name="bench")
    app()
