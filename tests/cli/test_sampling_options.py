"""What `octavo chat` and `octavo generate` sample with."""

from __future__ import annotations

import pytest
import typer

from octavo.cli.options import SamplingOptions

RECOMMENDED = {"temperature": 0.7, "top_k": 20}


def test_what_nobody_sets_is_as_the_model_recommends():
    params = SamplingOptions(model="m").sampling_params(RECOMMENDED)
    assert (params.temperature, params.top_k, params.top_p, params.max_tokens) == (0.7, 20, 1.0, None)


def test_what_the_user_sets_wins_even_where_it_is_zero():
    params = SamplingOptions(model="m", temperature=0.0, top_k=0, max_tokens=8).sampling_params(RECOMMENDED)
    assert (params.temperature, params.top_k, params.max_tokens) == (0.0, 0, 8)


def test_a_wrong_value_is_a_usage_error():
    with pytest.raises(typer.BadParameter, match="top_p"):
        SamplingOptions(model="m", top_p=2.0).sampling_params()
