"""octavo run-batch: a file of requests becomes a file of answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.failure import exit_on
from octavo.cli.options import EngineOptions

if TYPE_CHECKING:
    from octavo.server.batch import BatchCounts

IN_FLIGHT_PER_SEQ = 2  # requests asked at once for each that can run, so that the next ones are always at hand


@dataclass(frozen=True, kw_only=True)
class RunBatchOptions(EngineOptions):
    """What `octavo run-batch` can be told."""

    model: Annotated[
        str, typer.Option("--model", "-m", help="A .gguf file, a Hugging Face folder or a repository name.")
    ]
    input_file: Annotated[Path, typer.Option("--input-file", "-i", help="Requests, one a line, in OpenAI's form.")]
    output_file: Annotated[
        Path, typer.Option("--output-file", "-o", help="Answers, one a line. Those that are there are not asked again.")
    ]
    model_names: Annotated[
        list[str] | None,
        typer.Option("--served-model-name", help="Name of the model in the requests; may be given more than once."),
    ] = None


def run_batch(options: RunBatchOptions) -> None:
    """Answer the requests in a file. After an interruption the same command goes on where it was."""
    from octavo.engine.engine_status import EngineUnavailableError

    try:
        with exit_on(OSError, ValueError, EngineUnavailableError):
            counts = asyncio.run(_run(options))
    except KeyboardInterrupt:
        typer.echo("octavo: interrupted; the same command goes on where this one was", err=True)
        raise typer.Exit(130) from None  # what a shell expects after Ctrl-C
    typer.echo(
        f"octavo: {counts.num_succeeded} answered, {counts.num_failed} failed, "
        f"{counts.num_answered_before} answered before",
        err=True,
    )
    if counts.num_failed:
        raise typer.Exit(1)


async def _run(options: RunBatchOptions) -> BatchCounts:
    from octavo.engine.async_engine import AsyncEngine
    from octavo.server.app import create_app
    from octavo.server.batch import Batch, mend_output
    from octavo.server.server_config import ServerConfig

    if not options.input_file.is_file():
        raise ValueError(f"{options.input_file}: there is no such file")
    if options.output_file.exists() and options.output_file.samefile(options.input_file):
        raise ValueError(f"{options.output_file} is the input; choose another file for the answers")
    answered_ids = mend_output(options.output_file)  # before the model is loaded: it may be another file
    engine = AsyncEngine(options.engine_config())
    try:
        await engine.start()
        await engine.wait_until_ready()
        batch = Batch(
            create_app(engine, ServerConfig(model_names=tuple(options.model_names or ()))),
            max_in_flight=IN_FLIGHT_PER_SEQ * options.max_num_seqs,
            check_alive=engine.check_ready,
        )
        return await batch.run(options.input_file, options.output_file, answered_ids)
    finally:
        await engine.close()
