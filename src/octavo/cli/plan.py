"""octavo plan: how much of a load fits into a memory, from a model's header alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.failure import exit_on
from octavo.cli.workload_options import LengthOptions

if TYPE_CHECKING:
    from octavo.planning.model_header import ModelHeader
    from octavo.planning.plan import Plan

SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
UNITS = " KMGT"


@dataclass(frozen=True, kw_only=True)
class PlanOptions(LengthOptions):
    """What `octavo plan` can be told. The names are those of `octavo serve` and `octavo bench`."""

    model: Annotated[Path, typer.Argument(help="A .gguf file, a Hugging Face folder or its config.json alone.")]
    memory: Annotated[str | None, typer.Option(help="The device's memory, such as 16GiB; by default this one's.")] = (
        None
    )
    gpu_memory_utilization: Annotated[float, typer.Option(help="Share of the memory to use.", min=0.01, max=1.0)] = 0.9
    num_prompts: Annotated[int, typer.Option(min=1, help="Requests to draw, or to take from a trace.")] = 10_000
    max_num_seqs: Annotated[int, typer.Option(min=1, help="Requests that run at once.")] = 64
    max_num_batched_tokens: Annotated[int, typer.Option(min=1, help="Tokens computed in one step.")] = 512
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, or auto: what is nearest to the file.")] = "auto"
    quantization: Annotated[str | None, typer.Option(help="int8 or int4: quantize weights while loading.")] = None
    kv_cache_dtype: Annotated[str, typer.Option(help="float32, bfloat16, int8, or auto: as the weights need.")] = "auto"


def plan(options: PlanOptions) -> None:
    """Say what fits: weights, KV blocks, requests of these lengths, and the max_model_len to choose. Loads nothing."""
    from octavo.planning.model_header import read_header
    from octavo.weights.source import CheckpointError

    with exit_on(CheckpointError, OSError, ValueError):
        header = read_header(options.model)
        made = _make(header, options)
    typer.echo(made.render())
    typer.echo(f"{'to serve it':<21} octavo serve {options.model} {made.serve_flags()}")


def _make(header: ModelHeader, options: PlanOptions) -> Plan:
    from octavo.config import EngineConfig
    from octavo.engine import host
    from octavo.planning.plan import make_plan

    config = EngineConfig(
        model=str(options.model),
        dtype=options.dtype,
        quantization=options.quantization,
        kv_cache_dtype=options.kv_cache_dtype,
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        gpu_memory_utilization=options.gpu_memory_utilization,
    )
    memory_bytes = host.memory_limit_bytes() if options.memory is None else parse_bytes(options.memory)
    return make_plan(header, config, memory_bytes, options.workload().shapes())


def parse_bytes(text: str) -> int:
    """How many bytes "16GiB", "16GB", "16g" or "17179869184" are. Raises ValueError for anything else."""
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"the memory is {text!r}; write it like 16GiB, 16GB or a number of bytes")
    number, unit, binary = match.groups()
    power = UNITS.index(unit.upper() or " ")
    return int(float(number) * (1000 if unit and not binary and text.strip().upper().endswith("B") else 1024) ** power)
