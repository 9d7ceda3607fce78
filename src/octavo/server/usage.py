"""Usage: the tokens that a request took."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from octavo.core.messages import CacheMiss


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """Where prompt tokens came from."""

    cached_tokens: int
    cache_misses: list[CacheMiss] | UnsetType = UNSET  # of explain_cache_miss: of each prompt that has one


class CompletionTokensDetails(msgspec.Struct, frozen=True):
    """What tokens of the answer were for."""

    reasoning_tokens: int


class Usage(msgspec.Struct, frozen=True):
    """Tokens that a request took."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails | UnsetType = UNSET  # of models that reason
