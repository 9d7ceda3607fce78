"""From the fields of a request to SamplingParams; what octavo does not do is refused, never ignored."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from octavo.core.sampling_params import MAX_LOGIT_BIAS, RequestOutputKind, SamplingParams, check_count
from octavo.engine.wire import Ready
from octavo.server.errors import invalid, shorten
from octavo.server.generation_fields import GenerationFields
from octavo.server.structured_fields import structured_outputs

# Fields that ask for something octavo does not do, and the values that ask for nothing. An answer that silently
# disregards a constraint is worse than none.
NEUTRAL_VALUES: dict[str, tuple[Any, ...]] = {
    "length_penalty": (1,),
    "use_beam_search": (False,),
    "best_of": (1,),
    "logits_processors": ([],),
    "logprob_token_ids": ([],),
    "thinking_token_budget": (),
    "documents": ([],),
    "audio": (),
    "modalities": (["text"],),
    "web_search_options": (),
    "suffix": ("",),
    "prompt_embeds": (),
}
MAX_KEY_CHARS = 40  # of a wrong key, in an error
# What the body says in the very form that SamplingParams take.
SAMPLING_FIELDS = [
    field.name
    for field in dataclasses.fields(SamplingParams)
    if field.name in GenerationFields.__struct_fields__
    and field.name not in ("max_tokens", "logit_bias", "structured_outputs")
]


def refuse_unsupported(fields: dict[str, Any], neutral_values: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise the error for the first field that asks for what octavo does not do: any but its neutral values."""
    for name, value in fields.items():
        if name in neutral_values and not any(_is_same(value, neutral) for neutral in neutral_values[name]):
            raise invalid(name, f"{name} is not supported; leave it out", "unsupported_parameter")


def _is_same(value: Any, neutral: Any) -> bool:
    return bool(value == neutral) and isinstance(value, bool) == isinstance(neutral, bool)  # to Python, True == 1


def sampling_params(
    body: GenerationFields, ready: Ready, *, max_tokens: int | None, logprobs: int | None
) -> SamplingParams:
    """The parameters that the body asks for; what it leaves open is as the model's makers recommend.

    Raises ParameterError or the error for a max_tokens beyond the model.
    """
    max_model_len = ready.limits.max_model_len
    if body.stream and body.prompt_logprobs is not None:
        raise invalid("prompt_logprobs", "prompt_logprobs come with whole answers only; leave stream out")
    if max_tokens is not None and max_tokens > max_model_len:
        raise invalid(
            "max_tokens",
            f"max_tokens is {max_tokens}; this model's maximum context length is {max_model_len} tokens",
            "context_length_exceeded",
        )
    given: dict[str, Any] = ready.sampling_defaults | {
        name: getattr(body, name) for name in SAMPLING_FIELDS if getattr(body, name) is not None
    }
    if max_tokens is not None:
        given["max_tokens"] = max_tokens
    given.setdefault("max_tokens", None)
    if body.logit_bias is not None:
        check_count("logit_bias", len(body.logit_bias), MAX_LOGIT_BIAS, "ids")
        given["logit_bias"] = {_token_id(key): bias for key, bias in body.logit_bias.items()}
    kind = RequestOutputKind.DELTA if body.stream else RequestOutputKind.FINAL_ONLY
    return SamplingParams(**given, structured_outputs=structured_outputs(body), logprobs=logprobs, output_kind=kind)


def _token_id(key: str) -> int:
    """The token id that a key of logit_bias writes. One spelling each, so that no two keys mean the same id."""
    if not re.fullmatch("0|[1-9][0-9]{0,9}", key):
        shown = shorten(repr(key), MAX_KEY_CHARS)
        raise invalid("logit_bias", f"logit_bias has the key {shown}; keys are token ids, as integers from 0 up")
    return int(key)
