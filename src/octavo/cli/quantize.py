"""octavo quantize: a smaller checkpoint of a larger one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from octavo.cli.failure import exit_on

CALIBRATION_TEXT = Path(__file__).parent.parent / "compression" / "calibration.txt"


@dataclass(frozen=True, kw_only=True)
class QuantizeOptions:
    """What `octavo quantize` can be told."""

    model: Annotated[str, typer.Argument(help="A .gguf file, a Hugging Face folder or a repository name.")]
    out: Annotated[Path, typer.Argument(help="The folder to write; for gguf, the file.")]
    format: Annotated[
        str,
        typer.Option(help="awq: 4 bits, activation-aware; int8: a scale for each output; gguf-q4_0; gguf-q8_0."),
    ] = "awq"
    calibration: Annotated[
        Path, typer.Option(help="A text for awq: inputs that it makes large keep their precision.")
    ] = CALIBRATION_TEXT


def quantize(options: QuantizeOptions) -> None:
    """Write a quantized checkpoint: a folder as transformers reads it, or a GGUF file. Best made of floats."""
    from octavo.compression.gguf_quantizer import FILE_TYPES, write_quantized_gguf
    from octavo.compression.quantizer import write_awq, write_int8
    from octavo.weights.checkpoint import open_checkpoint
    from octavo.weights.source import CheckpointError

    if options.format not in ("awq", "int8", *FILE_TYPES):
        raise typer.BadParameter(f"format is {options.format!r}; choose awq, int8, {' or '.join(FILE_TYPES)}")
    with exit_on(CheckpointError, OSError, ValueError):
        if options.format in FILE_TYPES:
            write_quantized_gguf(options.model, options.out, options.format)
        elif options.format == "int8":
            write_int8(open_checkpoint(options.model), options.out)
        else:
            checkpoint = open_checkpoint(options.model)
            num_blocks = checkpoint.config.num_layers
            text = options.calibration.read_text("utf-8")
            write_awq(checkpoint, options.out, text, lambda i: typer.echo(f"block {i + 1} of {num_blocks}", err=True))
    files = [options.out] if options.out.is_file() else options.out.iterdir()
    size_bytes = sum(path.stat().st_size for path in files)
    typer.echo(f"{options.out}: {size_bytes / 1e6:.1f} MB; octavo serve {options.out}")
