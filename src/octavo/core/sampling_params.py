"""SamplingParams: what a request may ask of the sampler. Names, ranges and defaults are vLLM's."""

from __future__ import annotations

import json
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
    "presence_penalty": Range(float, -2.0, 2.0),
    "frequency_penalty": Range(float, -2.0, 2.0),
    "repetition_penalty": Range(float, 0.01, 100.0),  # beyond, logits would overflow; vLLM takes anything above 0
    "temperature": Range(float, 0.0, 2.0),
    "top_p": Range(float, 0.0, 1.0, above_low=True),
    "top_k": Range(int, -1, 2**31 - 1),
    "min_p": Range(float, 0.0, 1.0),
    "seed": Range(int, -(2**63), 2**63 - 1, optional=True),
    "max_tokens": Range(int, 1, 2**31 - 1, optional=True),
    "min_tokens": Range(int, 0, 2**31 - 1),
    "logprobs": Range(int, -1, 2**31 - 1, optional=True),
    "prompt_logprobs": Range(int, -1, 2**31 - 1, optional=True),
    "truncate_prompt_tokens": Range(int, -1, 2**31 - 1, optional=True),
}
BIAS_RANGE = Range(float, -100.0, 100.0)
# How many of a kind one request may hold.
MAX_STOP_STRINGS = 16
MAX_STOP_TOKEN_IDS = 128
MAX_LOGIT_BIAS = 1024
MAX_ALLOWED_TOKEN_IDS = 1024
MAX_BAD_WORDS = 128
MAX_CHOICES = 4096
MAX_GRAMMAR_BYTES = 256 << 10  # of a schema, a pattern, a grammar, or all choices together


class ParameterError(ValueError):
    """A parameter outside its range. `param` names it, for the error's `param` field on the wire."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True)
class StructuredOutputsParams:
    """What the whole output must be: exactly one of these, else ParameterError.

    Only the form is checked here. Whether a schema, a pattern or a grammar can be compiled, the engine says.
    """

    json: str | dict[str, Any] | None = None  # a JSON Schema; kept as JSON text, its keys in the order given
    regex: str | None = None
    choice: tuple[str, ...] | None = None  # one of these texts
    grammar: str | None = None  # in Lark's notation or in EBNF (GBNF), from the rule `start` or `root` on
    json_object: bool = False  # any JSON object

    def __post_init__(self) -> None:
        if self.json is not None:
            object.__setattr__(self, "json", _schema_text(self.json))
        if self.choice is not None:
            object.__setattr__(self, "choice", _strings("structured_outputs", self.choice, MAX_CHOICES))
            if not self.choice:
                raise _no_structure("choice is empty; give at least one text")
        if not isinstance(self.json_object, bool):
            raise _no_structure(f"json_object is {self.json_object!r}; it must be true or false")
        given = [name for name in self.__slots__ if getattr(self, name) not in (None, False)]
        if len(given) != 1:
            held = " and ".join(given) or "nothing"
            raise _no_structure(f"it holds {held}; give exactly one of {', '.join(self.__slots__)}")
        kind, source = self.constraint
        if not isinstance(source, str) or not source:
            raise _no_structure(f"{kind} is {source!r}; it must be a string that is not empty")
        try:
            num_bytes = len(source.encode())
        except UnicodeEncodeError as error:
            raise _no_structure(f"{kind} holds half a surrogate pair at character {error.start}") from None
        if num_bytes > MAX_GRAMMAR_BYTES:
            raise _no_structure(f"{kind} has {num_bytes} bytes; at most {MAX_GRAMMAR_BYTES} are allowed: simplify it")

    @property
    def constraint(self) -> tuple[str, str]:
        """("json", "regex", "choice" or "grammar", what it says): choices as a JSON list, json_object as a schema."""
        if self.choice is not None:
            return "choice", json.dumps(self.choice, ensure_ascii=False)
        if self.json_object:
            return "json", '{"type":"object"}'
        kind = next(name for name in ("json", "regex", "grammar") if getattr(self, name) is not None)
        return kind, getattr(self, kind)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose the tokens of one request, and when to stop.

    Raises ParameterError, naming the value, the limit and the remedy, for anything out of range.
    """

    n: int = 1  # independent continuations of the prompt; choice i draws with seed + i
    presence_penalty: float = 0.0  # taken off the logit of every token that is in the output
    frequency_penalty: float = 0.0  # taken off as often as the token is in the output
    repetition_penalty: float = 1.0  # divides the logit, if negative multiplies it, of what is in prompt or output
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
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token id, what is added to its logit); a dict is taken, too
    allowed_token_ids: tuple[int, ...] | None = None  # nothing else is generated
    bad_words: tuple[str, ...] = ()  # texts never completed: of several tokens the last is banned, in its place
    structured_outputs: StructuredOutputsParams | None = None
    logprobs: int | None = None  # how many alternatives to report at each token; 0: the chosen token only; -1: all
    prompt_logprobs: int | None = None  # the same at each token of the prompt
    truncate_prompt_tokens: int | None = None  # keep the last so many; -1: as many as fit beside max_tokens
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True  # vLLM's; the tokenizers that octavo reads put none there anyway
    include_stop_str_in_output: bool = False
    output_kind: RequestOutputKind = field(default=RequestOutputKind.CUMULATIVE)

    def __post_init__(self) -> None:
        for name, limits in RANGES.items():
            check_range(name, getattr(self, name), limits)
        stop = (self.stop,) if isinstance(self.stop, str) else self.stop
        object.__setattr__(self, "stop", _strings("stop", stop, MAX_STOP_STRINGS))
        object.__setattr__(self, "bad_words", _strings("bad_words", self.bad_words, MAX_BAD_WORDS))
        object.__setattr__(
            self, "stop_token_ids", _token_ids("stop_token_ids", self.stop_token_ids, MAX_STOP_TOKEN_IDS)
        )
        object.__setattr__(self, "logit_bias", _logit_bias(self.logit_bias))
        if self.allowed_token_ids is not None:
            allowed = _token_ids("allowed_token_ids", self.allowed_token_ids, MAX_ALLOWED_TOKEN_IDS)
            object.__setattr__(self, "allowed_token_ids", allowed)
            if not allowed:
                raise ParameterError(
                    "allowed_token_ids", "allowed_token_ids is empty; leave it out to allow every token"
                )
        if not isinstance(self.structured_outputs, StructuredOutputsParams | None):
            raise _no_structure(f"it is a {type(self.structured_outputs).__name__}; make a StructuredOutputsParams")
        if self.truncate_prompt_tokens == 0:
            raise ParameterError("truncate_prompt_tokens", "truncate_prompt_tokens is 0; keep at least one token")
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
        noun = "an integer" if limits.kind is int else "a number"
        raise ParameterError(name, f"{name} is {value!r}; it must be {noun}")
    is_inside = (limits.low < value if limits.above_low else limits.low <= value) and value <= limits.high
    if not is_inside:  # as with NaN, of which no comparison holds
        low_word = "above" if limits.above_low else "at least"
        raise ParameterError(name, f"{name} is {value}; it must be {low_word} {limits.low} and at most {limits.high}")


def check_count(name: str, num_items: int, limit: int, noun: str) -> None:
    """Raise ParameterError if the field `name` holds more than `limit` of these."""
    if num_items > limit:
        raise ParameterError(name, f"{name} holds {num_items} {noun}; at most {limit} are allowed")


def _strings(name: str, value: Any, max_num_strings: int) -> tuple[str, ...]:
    if isinstance(value, str):
        raise ParameterError(name, f"{name} is {value!r}; it must be a list of strings")
    strings = tuple(value or ())
    check_count(name, len(strings), max_num_strings, "strings")
    for string in strings:
        if not isinstance(string, str) or not string:
            raise ParameterError(name, f"{name} holds {string!r}; it may hold only strings that are not empty")
    return strings


def _token_ids(name: str, value: Any, max_num_ids: int) -> tuple[int, ...]:
    ids = tuple(value or ())
    check_count(name, len(ids), max_num_ids, "ids")
    for token_id in ids:
        _check_token_id(name, token_id)
    return ids


def _schema_text(schema: Any) -> str:
    """A JSON Schema as compact JSON text: equal schemas in equal words, whatever blanks they came with."""
    try:
        value = json.loads(schema) if isinstance(schema, str) else schema
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError) as error:
        raise _no_structure(f"json is no JSON: {error}") from None
    except RecursionError:
        raise _no_structure("json is nested too deeply") from None
    if not isinstance(value, dict):
        raise _no_structure(f"json is a {type(value).__name__}; it must be a schema, which is an object")
    return text


def _no_structure(message: str) -> ParameterError:
    return ParameterError("structured_outputs", f"structured_outputs: {message}")


def _logit_bias(value: Any) -> tuple[tuple[int, float], ...]:
    bias_by_id = dict(value or ())
    check_count("logit_bias", len(bias_by_id), MAX_LOGIT_BIAS, "ids")
    for token_id, bias in bias_by_id.items():
        _check_token_id("logit_bias", token_id)
        check_range("logit_bias", bias, BIAS_RANGE)
    return tuple((token_id, float(bias)) for token_id, bias in bias_by_id.items())


def _check_token_id(name: str, token_id: Any) -> None:
    if isinstance(token_id, bool) or not isinstance(token_id, int) or not 0 <= token_id < 2**31:
        raise ParameterError(name, f"{name} holds {token_id!r}; token ids are integers from 0 up")
