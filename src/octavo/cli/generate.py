"""octavo generate: one prompt, continued on the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from octavo.cli.options import SamplingOptions


@dataclass(frozen=True, kw_only=True)
class GenerateOptions(SamplingOptions):
    """What `octavo generate` can be told."""

    prompt: Annotated[str, typer.Argument(help="The text to continue, as it is.")]


def generate(options: GenerateOptions) -> None:
    """Continue a prompt, and print the text as it comes."""
    from octavo.cli.session import open_session

    options.sampling_params()  # what is wrong is said before the model is loaded
    with open_session(options.engine_config()) as session:
        answer = session.continue_prompt(options.prompt, options.sampling_params(session.sampling_defaults))
    if not answer.is_complete:
        raise typer.Exit(130)  # what a shell expects after Ctrl-C
