from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from octavo.core.sampling_params import (
    MAX_ALLOWED_TOKEN_IDS,
    MAX_BAD_WORDS,
    MAX_LOGIT_BIAS,
    MAX_STOP_STRINGS,
    MAX_STOP_TOKEN_IDS,
    RANGES,
    ParameterError,
    SamplingParams,
)

# A field's neighbours, where its value at the limit would be refused for another reason.
COMPANIONS: dict[str, dict[str, Any]] = {"min_tokens": {"max_tokens": None}}


def make(name: str, value: Any) -> SamplingParams:
    return SamplingParams(**{name: value}, **COMPANIONS.get(name, {}))


@pytest.mark.parametrize("name", RANGES)
def test_the_limits_themselves_pass_and_what_lies_beyond_does_not(name):
    limits = RANGES[name]
    step: float = 1 if limits.kind is int else 1e-9
    lowest = limits.low + step if limits.above_low else limits.low
    for value in (limits.kind(lowest), limits.kind(limits.high)):
        assert getattr(make(name, value), name) == value
    for value in (limits.kind(lowest - step), limits.kind(limits.high + step)):
        with pytest.raises(ParameterError, match=f"{name} is .* must be") as caught:
            make(name, value)
        assert caught.value.param == name


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, True, "1", [1], 1j])
def test_what_is_no_number_of_this_world_is_refused(name, value):
    with pytest.raises(ParameterError) as caught:
        make(name, value)
    assert caught.value.param == name


@pytest.mark.parametrize("name", RANGES)
def test_none_stands_for_a_default_only_where_there_is_one(name):
    if RANGES[name].optional:
        assert getattr(make(name, None), name) is None
    else:
        with pytest.raises(ParameterError):
            make(name, None)


def test_integers_are_accepted_as_numbers_and_fractions_not_as_integers():
    assert SamplingParams(temperature=1, top_p=1).temperature == 1
    with pytest.raises(ParameterError, match="top_k is 1\\.0; it must"):
        SamplingParams(top_k=1.0)  # type: ignore[arg-type]


def test_stop_strings():
    assert SamplingParams(stop="end").stop == ("end",)  # type: ignore[arg-type]
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")  # type: ignore[arg-type]
    assert SamplingParams(stop=None).stop == ()  # type: ignore[arg-type]
    assert len(SamplingParams(stop=("x",) * MAX_STOP_STRINGS).stop) == MAX_STOP_STRINGS
    for stop in ("", ("a", ""), (1,), ("x",) * (MAX_STOP_STRINGS + 1)):
        with pytest.raises(ParameterError) as caught:
            SamplingParams(stop=stop)  # type: ignore[arg-type]
        assert caught.value.param == "stop"
    with pytest.raises(ParameterError, match="stop strings need detokenize=True"):
        SamplingParams(stop=("end",), detokenize=False)


def test_stop_token_ids():
    assert SamplingParams(stop_token_ids=[0, 2**31 - 1]).stop_token_ids == (0, 2**31 - 1)  # type: ignore[arg-type]
    assert len(SamplingParams(stop_token_ids=(1,) * MAX_STOP_TOKEN_IDS).stop_token_ids) == MAX_STOP_TOKEN_IDS
    for token_ids in ((-1,), (2**31,), (1.5,), ("1",), (True,), (1,) * (MAX_STOP_TOKEN_IDS + 1)):
        with pytest.raises(ParameterError) as caught:
            SamplingParams(stop_token_ids=token_ids)  # type: ignore[arg-type]
        assert caught.value.param == "stop_token_ids"


def test_logit_bias_is_kept_as_pairs():
    params = SamplingParams(logit_bias={5: 1, 0: -100.0, 2**31 - 1: 100})  # type: ignore[arg-type]
    assert params.logit_bias == ((5, 1.0), (0, -100.0), (2**31 - 1, 100.0))
    assert all(type(bias) is float for _, bias in params.logit_bias)
    assert replace(params, seed=1).logit_bias == params.logit_bias
    assert SamplingParams(logit_bias={}).logit_bias == SamplingParams(logit_bias=None).logit_bias == ()  # type: ignore[arg-type]
    biases = tuple((token_id, 1.0) for token_id in range(MAX_LOGIT_BIAS + 1))
    assert SamplingParams(logit_bias=biases[1:]).logit_bias == biases[1:]
    with pytest.raises(ParameterError, match="logit_bias holds 1025 ids; at most 1024 are allowed"):
        SamplingParams(logit_bias=biases)


@pytest.mark.parametrize(
    "entry",
    [
        *((5, bias) for bias in (100.1, -101, math.nan, math.inf, "1", None, True, 10**400)),
        *((token_id, 1.0) for token_id in (-1, 2**31, 2**63, "5", 1.5, True, None)),
    ],
)
def test_what_is_no_bias_of_a_token_is_refused(entry):
    with pytest.raises(ParameterError) as caught:
        SamplingParams(logit_bias=((7, 1.0), entry))
    assert caught.value.param == "logit_bias"


def test_allowed_token_ids():
    assert SamplingParams().allowed_token_ids is None
    assert SamplingParams(allowed_token_ids=[3, 0]).allowed_token_ids == (3, 0)  # type: ignore[arg-type]
    for token_ids in ([], [-1], [2**31], [1.5], ["1"], [True], range(MAX_ALLOWED_TOKEN_IDS + 1)):
        with pytest.raises(ParameterError) as caught:
            SamplingParams(allowed_token_ids=token_ids)  # type: ignore[arg-type]
        assert caught.value.param == "allowed_token_ids"


def test_bad_words():
    assert SamplingParams(bad_words=["a", " b"]).bad_words == ("a", " b")  # type: ignore[arg-type]
    for words in ("word", [""], [1], [None], ["x"] * (MAX_BAD_WORDS + 1)):
        with pytest.raises(ParameterError) as caught:
            SamplingParams(bad_words=words)  # type: ignore[arg-type]
        assert caught.value.param == "bad_words"


def test_params_can_be_compared_and_kept_in_a_set():
    lists: dict[str, Any] = {"stop": ["a"], "bad_words": ["b"], "allowed_token_ids": [1], "stop_token_ids": [2]}

    def params() -> SamplingParams:
        return SamplingParams(**lists, logit_bias=((1, 2),), presence_penalty=1)

    assert params() == params()
    assert len({params(), params(), SamplingParams()}) == 2


def test_fields_that_contradict_each_other():
    assert SamplingParams(min_tokens=16, max_tokens=16).min_tokens == 16
    with pytest.raises(ParameterError, match=r"min_tokens is 17; it must not exceed max_tokens \(16\)"):
        SamplingParams(min_tokens=17)
    assert SamplingParams(n=2, temperature=1e-5).n == 2
    with pytest.raises(ParameterError, match="n is 2 at temperature 0") as caught:
        SamplingParams(n=2, temperature=1e-6)
    assert caught.value.param == "n"


def test_greedy_begins_below_one_in_a_hundred_thousand():
    assert [SamplingParams(temperature=t).is_greedy for t in (0, 9.9e-6, 1e-5, 1)] == [True, True, False, False]
