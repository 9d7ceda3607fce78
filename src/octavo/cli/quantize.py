"""octavo quantize: a smaller checkpoint of a larger one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

CALIBRATION_TEXT = Path(__file__).parent.parent / "compression" / "calibration.txt"


@dataclass(frozen=True, kw_only=True)
class QuantizeOptions:
    """What `octavo quantize` can be told."""

    model: Annotated[str, typer.Argument(help="A .gguf file, a Hugging Face folder or a repository name.")]
    out: Annotated[Path, typer.Argument(help="The folder to write.")]
    format: Annotated[str, typer.Option(help="awq: 4 bits, activation-aware; int8: a scale for each output.")] = "awq"
    calibration: Annotated[
        Path, typer.Option(help="A text for awq: inputs that it makes large keep their precision.")
    ] = CALIBRATION_TEXT


def quantize(options: QuantizeOptions) -> None:
    """Write a quantized checkpoint that octavo and transformers read. Best made of floats."""
    from octavo.compression.quantizer import write_awq, write_int8
    from octavo.weights.checkpoint import open_checkpoint
    from octavo.weights.source import CheckpointError

    if options.format not in ("awq", "int8"):
        raise typer.BadParameter(f"format is {options.format!r}; choose awq or int8")
    try:
        checkpoint = open_checkpoint(options.model)
        if options.format == "int8":
            write_int8(checkpoint, options.out)
        else:
            num_blocks = checkpoint.config.num_layers
            text = options.calibration.read_text("utf-8")
            write_awq(checkpoint, options.out, text, lambda i: typer.echo(f"block {i + 1} of {num_blocks}", err=True))
    except (CheckpointError, OSError, ValueError) as error:
        typer.echo(f"octavo: {error}", err=True)
        raise typer.Exit(1) from None
    size_bytes = sum(path.stat().st_size for path in options.out.iterdir())
    typer.echo(f"{options.out}: {size_bytes / 1e6:.1f} MB; octavo serve {options.out}")
