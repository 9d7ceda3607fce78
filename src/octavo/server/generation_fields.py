"""GenerationFields: how a request may say to generate, in OpenAI's words and vLLM's; other APIs' come to these."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from octavo.server.structured_fields import StructuredFields


class StreamOptions(msgspec.Struct, frozen=True):
    """How a stream reports its usage."""

    include_usage: bool | None = None  # one more chunk at the end
    continuous_usage_stats: bool | None = None  # the usage so far on each chunk


class GenerationFields(StructuredFields, frozen=True, kw_only=True):
    """The fields of a request that say how to generate. None: not given. Ranges are those of SamplingParams."""

    model: str | None = None
    n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    logit_bias: dict[str, Any] | None = None  # keys are token ids, written out
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    prompt_logprobs: int | None = None
    truncate_prompt_tokens: int | None = None
    return_token_ids: bool = False  # the ids beside the text, of prompt and answer
    return_tokens_as_token_ids: bool = False  # tokens in log-probabilities as "token_id:5": texts may coincide
    max_tokens: int | None = None
    min_tokens: int | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    priority: Annotated[int, Meta(ge=-(2**31), lt=2**31)] = 0
    cache_salt: Annotated[str, Meta(max_length=128)] = ""
    user: str | None = None  # under the fair policy, users take turns
    explain_cache_miss: bool = False  # in the usage
    timeout: Annotated[float, Meta(gt=0)] | None = None  # seconds, after which the answer ends as far as it is
