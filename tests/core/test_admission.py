from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.core.admission import AdmissionLimits, RequestRejected
from octavo.sim.checked_engine import CheckedEngine
from octavo.sim.engine_settings import EngineSettings
from tests.core.engine_requests import make_request, make_tokens
from tests.core.hypothesis_settings import SHORT

LIMITS = AdmissionLimits(max_model_len=100, num_blocks=4, block_size=16)


@pytest.mark.parametrize(
    ("num_prompt_tokens", "max_tokens", "total"), [(10, 5, 15), (10, 90, 100), (10, 91, 100), (10, None, 100)]
)
def test_a_sequence_ends_with_max_tokens_or_with_the_model(num_prompt_tokens, max_tokens, total):
    assert LIMITS.max_total_tokens(num_prompt_tokens, max_tokens) == total


@pytest.mark.parametrize(("num_tokens", "num_blocks"), [(0, 0), (1, 1), (16, 1), (17, 2), (64, 4)])
def test_blocks_are_counted_whole(num_tokens, num_blocks):
    assert LIMITS.num_blocks_for(num_tokens) == num_blocks


def test_the_last_token_needs_no_block():
    LIMITS.check(60, 5)  # 65 tokens, 64 of them in the cache: four blocks
    with pytest.raises(RequestRejected, match="need 5 KV blocks of 16 tokens and the pool has 4") as caught:
        LIMITS.check(60, 6)
    assert caught.value.code == "context_length_exceeded"


def test_a_prompt_must_be_there_and_leave_room():
    with pytest.raises(RequestRejected, match="holds no tokens") as caught:
        LIMITS.check(0, 5)
    assert caught.value.code == "invalid_value"
    roomy = AdmissionLimits(max_model_len=100, num_blocks=40, block_size=16)
    roomy.check(99, None)
    with pytest.raises(RequestRejected, match="maximum context length is 100 tokens and the prompt has 100"):
        roomy.check(100, 1)


@SHORT
@given(
    num_blocks=st.integers(1, 4),
    block_size=st.sampled_from([2, 4]),
    num_prompt_tokens=st.integers(1, 20),
    max_tokens=st.integers(1, 20),
)
def test_what_is_let_in_is_served_to_the_end(num_blocks, block_size, num_prompt_tokens, max_tokens):
    engine = CheckedEngine(EngineSettings(num_blocks=num_blocks, block_size=block_size, max_model_len=24))
    fits = num_prompt_tokens < 24 and min(num_prompt_tokens + max_tokens, 24) - 1 <= num_blocks * block_size
    request = make_request("r", make_tokens(num_prompt_tokens), max_tokens=max_tokens)
    if fits:
        engine.add(request)
    else:
        with pytest.raises(RequestRejected):
            engine.add(request)
    engine.drain()
