from __future__ import annotations

import pytest

from octavo.core.request import Request, RequestStatus
from tests.core.engine_requests import make_request


def make(index: int = 0, max_total_tokens: int = 100, **fields) -> Request:
    return Request(make_request("r", [1, 2, 3], **fields), index, (0, 1, index), max_total_tokens)


def test_a_new_request_knows_its_prompt_and_has_computed_nothing():
    request = make(seed=5, salt="tenant")
    assert (request.num_tokens, request.num_prompt_tokens, request.num_output_tokens) == (3, 3, 0)
    assert (request.num_computed_tokens, request.num_cached_tokens, request.row) == (0, None, -1)
    assert (request.status, request.seed, request.cache_salt) == (RequestStatus.WAITING, 5, "tenant")


def test_each_choice_draws_with_a_seed_of_its_own_that_wraps_around():
    assert [make(i, seed=2**64 - 2, n=4).seed for i in range(4)] == [2**64 - 2, 2**64 - 1, 0, 1]


def test_drafts_are_wanted_and_not_known():
    request = make()
    request.draft_token_ids = (7, 8)
    assert (request.num_tokens, request.num_tokens_with_drafts) == (3, 5)


@pytest.mark.parametrize(
    ("fields", "token_id", "end"),
    [
        ({"eos": (7, 8)}, 7, ("stop", None)),
        ({"eos": (7, 8)}, 8, ("stop", 8)),  # an extra end of sequence names itself
        ({"eos": (7, 8)}, 6, None),
        ({"eos": (7, 8), "ignore_eos": True}, 7, None),
        ({"eos": (7,), "ignore_eos": True, "stop_token_ids": (9,)}, 9, ("stop", 9)),
        ({"eos": (7,), "stop_token_ids": (7,)}, 7, ("stop", 7)),  # asked for by name
        ({"eos": ()}, 0, None),
    ],
)
def test_what_ends_a_request_and_what_it_says(fields, token_id, end):
    assert make(**fields).append_token(token_id) == end


def test_the_length_limit_ends_it_and_a_stop_on_the_last_token_wins():
    request = make(max_total_tokens=5, eos=(7,))
    assert [request.append_token(4), request.append_token(4)] == [None, ("length", None)]
    request = make(max_total_tokens=4, eos=(7,))
    assert request.append_token(7) == ("stop", None)


def test_the_first_min_tokens_end_nothing_by_their_value():
    request = make(eos=(7,), stop_token_ids=(9,), min_tokens=2)
    assert [request.append_token(token_id) for token_id in (7, 9, 7)] == [None, None, ("stop", None)]
    assert request.token_ids == [1, 2, 3, 7, 9, 7]


def test_end_tokens_are_listed_once_and_in_order():
    assert make(eos=(7, 8), stop_token_ids=(9, 7, 9)).end_token_ids == (7, 8, 9)
    assert make(eos=(7, 8), stop_token_ids=(9, 7), ignore_eos=True).end_token_ids == (9, 7)
