"""The options of a command are a dataclass: what the command line may say, with its help."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

if TYPE_CHECKING:
    from octavo.config import EngineConfig
    from octavo.core.sampling_params import SamplingParams

Options = TypeVar("Options")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What every command that runs a model can be told about the engine. The names are those of EngineConfig."""

    model: Annotated[str, typer.Argument(help="A .gguf file, a Hugging Face folder or a repository name.")]
    max_model_len: Annotated[
        int | None, typer.Option(help="Tokens of prompt and output together; by default as many as fit into memory.")
    ] = None
    max_num_seqs: Annotated[int, typer.Option(help="Requests that run at once.")] = 64
    max_num_batched_tokens: Annotated[int, typer.Option(help="Tokens computed in one step, over all requests.")] = 512
    target_itl_ms: Annotated[
        float | None,
        typer.Option(help="Cut prompts so that running streams get a token about this often, in milliseconds."),
    ] = None
    gpu_memory_utilization: Annotated[
        float | None, typer.Option(help="Share of the device's memory (on a CPU: of the machine's) to use.")
    ] = None
    kv_cache_memory_bytes: Annotated[
        int | None, typer.Option(help="Size of the KV cache; overrides --gpu-memory-utilization.")
    ] = None
    enable_prefix_caching: Annotated[
        bool,
        typer.Option("--enable-prefix-caching/--no-enable-prefix-caching", help="Reuse the KV of shared prefixes."),
    ] = True
    scheduling_policy: Annotated[
        str, typer.Option(help="fcfs; priority: smaller values first; fair: those of different users take turns.")
    ] = "fcfs"
    backend: Annotated[str, typer.Option(help="native, or reference: slow and obviously right.")] = "native"
    dtype: Annotated[
        str, typer.Option(help="What weights become: float32, bfloat16, or auto: what is nearest to their file.")
    ] = "auto"
    quantization: Annotated[
        str | None,
        typer.Option(help="int8 or int4: quantize weights while loading; awq, gptq, ...: the checkpoint must be so."),
    ] = None
    activation_dtype: Annotated[
        str, typer.Option(help="float: quantized weights multiply floats, exactly and slowly; auto: whole numbers.")
    ] = "auto"
    kv_cache_dtype: Annotated[
        str, typer.Option(help="What K and V are stored as: float32, bfloat16, int8, or auto: as the weights need.")
    ] = "auto"
    speculative_config: Annotated[
        str | None,
        typer.Option(
            help="JSON: how to guess tokens ahead. "
            '{"method": "ngram", "num_speculative_tokens": 8} or {"model": MODEL, "num_speculative_tokens": 4}.'
        ),
    ] = None
    num_threads: Annotated[
        int | None, typer.Option(help="Kernel threads; by default the CPUs this process may use.")
    ] = None
    max_logprobs: Annotated[
        int, typer.Option(help="Most log-probabilities a request may ask for at each token; -1: the whole vocabulary.")
    ] = 20
    generation_config: Annotated[
        str, typer.Option(help="Sampling defaults: auto, the checkpoint's own, or vllm, none but the API's.")
    ] = "auto"
    step_log: Annotated[
        str | None, typer.Option(help="Append a line for each step to this file, for `octavo simulate --fit`.")
    ] = None
    seed: Annotated[
        int | None, typer.Option(help="Where requests without a seed get theirs from; by default fresh randomness.")
    ] = None

    def engine_config(self) -> EngineConfig:
        """The configuration that these options ask for. Exits with a usage error if it is not valid."""
        from octavo.config import EngineConfig, SpeculativeConfig

        values = shared_values(self, EngineConfig)
        try:
            if self.speculative_config is not None:
                values["speculative_config"] = SpeculativeConfig.of(_json_object(self.speculative_config))
            return EngineConfig(**values)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingOptions(EngineOptions):
    """What a command that generates can be told besides. The names are those of SamplingParams."""

    max_tokens: Annotated[int | None, typer.Option(help="Tokens to generate; by default as many as fit.")] = None
    temperature: Annotated[
        float | None, typer.Option(help="0 takes the most likely token every time; by default the model's own, or 1.")
    ] = None
    top_p: Annotated[
        float | None,
        typer.Option(help="Choose among the most likely tokens of this much probability; by default the model's own."),
    ] = None
    top_k: Annotated[
        int | None,
        typer.Option(help="Choose among this many most likely tokens, 0: all; by default the model's own."),
    ] = None

    def sampling_params(self, defaults: Mapping[str, int | float] | None = None) -> SamplingParams:
        """The parameters that these options ask for, over the model's `defaults`.

        Exits with a usage error if they are not valid.
        """
        from octavo.core.sampling_params import RequestOutputKind, SamplingParams

        given = {name: getattr(self, name) for name in ("temperature", "top_p", "top_k")}
        chosen: dict[str, Any] = dict(defaults or {}) | {k: v for k, v in given.items() if v is not None}
        try:
            return SamplingParams(**chosen | {"max_tokens": self.max_tokens}, output_kind=RequestOutputKind.DELTA)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None


def shared_values(options: EngineOptions, config_type: type[Any]) -> dict[str, Any]:
    """The options that a configuration has under the same names."""
    names = {field.name for field in dataclasses.fields(config_type)}
    return {field.name: getattr(options, field.name) for field in dataclasses.fields(options) if field.name in names}


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"speculative_config is {text!r}, which is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"speculative_config is {text}; it must be a JSON object")
    return value


def command(options_type: type[Options], run: Callable[[Options], None]) -> Callable[..., None]:
    """`run` as typer wants a command: a function with one parameter for each field of `options_type`."""

    def parse(**values: Any) -> None:
        run(options_type(**values))

    hints = get_type_hints(options_type, include_extras=True)
    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=hints[field.name],
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
        )
        for field in dataclasses.fields(options_type)  # type: ignore[arg-type]
    ]
    parse.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    parse.__annotations__ = hints
    parse.__doc__ = run.__doc__
    return parse
