"""EngineRequests for tests: one prompt, and only those parameters that a test is about."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from octavo.core.messages import EngineRequest
from octavo.core.sampling_params import SamplingParams


def make_request(
    request_id: str,
    prompt: Sequence[int],
    *,
    seed: int = 0,
    eos: tuple[int, ...] = (),
    priority: int = 0,
    salt: str = "",
    arrival_s: float = 0.0,
    **params: Any,
) -> EngineRequest:
    return EngineRequest(
        request_id,
        tuple(prompt),
        SamplingParams(**params),
        seed,
        eos_token_ids=eos,
        priority=priority,
        cache_salt=salt,
        arrival_s=arrival_s,
    )


def make_tokens(num_tokens: int, seed: int = 0) -> tuple[int, ...]:
    """Tokens that no other seed gives."""
    random = Random(seed)
    return tuple(random.randrange(10**6) for _ in range(num_tokens))
