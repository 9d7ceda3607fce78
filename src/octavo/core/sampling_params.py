"""SamplingParams: what a request may ask of the sampler. Names, ranges and defaults are vLLM's."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

GREEDY_TEMPERATURE = 1e-5  # below this a temperature means "take the most likely token"
SEED_BITS = 64


class RequestOutputKind(Enum):
    """What each RequestOutput of a stream holds."""

    CUMULATIVE = "cumulative"  # everything so far
    DELTA = "delta"  # what is new
    FINAL_ONLY = "final_only"  # nothing until the request has ended


class Range(NamedTuple):
    """Type and inclusive limits of one numeric field; `optional` fields accept None."""

    kind: type
    low: float
    high: float
    optional: bool = False
    above_low: bool = False  # the lower limit itself is excluded


# One table for the Python API and for HTTP alike.
RANGES: dict[str, Range] = {
    "n": Range(int, 1, 128),
    "temperature": Range(float, 0.0, 2.0),
    "top_p": Range(float, 0.0, 1.0, above_low=True),
    "top_k": Range(int, -1, 2**31 - 1),
    "min_p": Range(float, 0.0, 1.0),
    "seed": Range(int, -(2**63), 2**63 - 1, optional=True),
    "max_tokens": Range(int, 1, 2**31 - 1, optional=True),
    "min_tokens": Range(int, 0, 2**31 - 1),
    "logprobs": Range(int, 0, 2**31 - 1, optional=True),
}
MAX_STOP_STRINGS = 16
MAX_STOP_TOKEN_IDS = 128


class ParameterError(ValueError):
    """A parameter outside its range. `param` names it, for the error's `param` field on the wire."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose the tokens of one request, and when to stop.

    Raises ParameterError, naming the value, the limit and the remedy, for anything out of range.
    """

    n: int = 1  # independent continuations of the prompt; choice i draws with seed + i
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # 0 or -1: off
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    max_tokens: int | None = 16  # None: up to the model's length
    min_tokens: int = 0
    logprobs: int | None = None  # how many alternatives to report at each token; 0: the chosen token only
    detokenize: bool = True
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_kind: RequestOutputKind = field(default=RequestOutputKind.CUMULATIVE)

    def __post_init__(self) -> None:
        for name, limits in RANGES.items():
            check_range(name, getattr(self, name), limits)
        object.__setattr__(self, "stop", _stop_strings(self.stop))
        object.__setattr__(self, "stop_token_ids", _stop_token_ids(self.stop_token_ids))
        if self.stop and not self.detokenize:
            raise ParameterError("stop", "stop strings need detokenize=True; use stop_token_ids instead")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ParameterError(
                "min_tokens", f"min_tokens is {self.min_tokens}; it must not exceed max_tokens ({self.max_tokens})"
            )
        if self.n > 1 and self.is_greedy:
            raise ParameterError("n", f"n is {self.n} at temperature 0, where all choices are equal; use n=1")

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is taken, without a draw."""
        return self.temperature < GREEDY_TEMPERATURE


def check_range(name: str, value: Any, limits: Range) -> None:
    """Raise ParameterError unless `value` has the type and lies within the limits. NaN and infinities never do."""
    if value is None and limits.optional:
        return
    accepted = (int, float) if limits.kind is float else (int,)
    if isinstance(value, bool) or not isinstance(value, accepted):
        raise ParameterError(name, f"{name} is {value!r}; it must be {_article(limits.kind)}")
    below = value <= limits.low if limits.above_low else value < limits.low
    if not math.isfinite(value) or below or value > limits.high:
        low_word = "above" if limits.above_low else "at least"
        raise ParameterError(name, f"{name} is {value}; it must be {low_word} {limits.low} and at most {limits.high}")


def _article(kind: type) -> str:
    return "an integer" if kind is int else "a number"


def _stop_strings(stop: Any) -> tuple[str, ...]:
    strings = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(strings) > MAX_STOP_STRINGS:
        raise ParameterError("stop", f"stop holds {len(strings)} strings; at most {MAX_STOP_STRINGS} are allowed")
    for string in strings:
        if not isinstance(string, str) or not string:
            raise ParameterError("stop", f"stop holds {string!r}; every stop must be a string that is not empty")
    return strings


def _stop_token_ids(token_ids: Any) -> tuple[int, ...]:
    ids = tuple(token_ids or ())
    if len(ids) > MAX_STOP_TOKEN_IDS:
        raise ParameterError(
            "stop_token_ids", f"stop_token_ids holds {len(ids)} ids; at most {MAX_STOP_TOKEN_IDS} are allowed"
        )
    for token_id in ids:
        if isinstance(token_id, bool) or not isinstance(token_id, int) or not 0 <= token_id < 2**31:
            raise ParameterError("stop_token_ids", f"stop_token_ids holds {token_id!r}; ids are integers from 0 up")
    return ids
