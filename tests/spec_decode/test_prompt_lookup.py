from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from octavo.spec_decode.prompt_lookup import NgramIndex, PromptLookup
from tests.worker.steps import step


def index_of(*token_ids: int, min_length: int = 2, max_length: int = 4) -> NgramIndex:
    index = NgramIndex(min_length=min_length, max_length=max_length)
    index.extend(token_ids)
    return index


def test_what_followed_the_last_tokens_before():
    assert index_of(1, 2, 3, 4, 5, 1, 2).continuation(3) == [3, 4, 5]
    assert index_of(1, 2, 3, 4, 5, 1, 2).continuation(1) == [3]
    assert index_of(1, 2, 3).continuation(3) == []
    assert index_of().continuation(3) == []
    assert index_of(7, 8, 1, 7).continuation(3) == []  # one token is too few


def test_the_longest_match_counts_and_of_those_the_last():
    assert index_of(9, 1, 2, 3, 1, 2, 4, 9, 1, 2).continuation(1) == [3]
    assert index_of(1, 2, 3, 1, 2, 4, 1, 2).continuation(1) == [4]
    assert index_of(9, 1, 2, 3, 1, 2, 4, 9, 1, 2, max_length=2).continuation(1) == [4]


def test_a_copy_that_reaches_the_end_goes_on_with_itself():
    assert index_of(1, 2, 3, 1, 2).continuation(7) == [3, 1, 2, 3, 1, 2, 3]
    assert index_of(5, 5, 5).continuation(3) == [5, 5, 5]


def test_a_copy_that_is_right_goes_on_where_other_places_begin_alike():
    """The text holds "1 2" three times; who copies from the first stays there."""
    index = index_of(7, 1, 2, 3, 1, 2, 4, 1, 2, 5, 0, 7, min_length=1, max_length=1)
    assert index.continuation(6) == [1, 2, 3, 1, 2, 4]
    index.extend([1, 2, 3])
    assert index.continuation(3) == [1, 2, 4]
    index.extend([9])  # not what was copied
    assert index.continuation(3) == []


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 3), st.integers(0, 2))
def test_it_finds_what_a_search_of_the_text_finds(token_ids, min_length, more):
    index = index_of(*token_ids, min_length=min_length, max_length=min_length + more)
    text, found = token_ids, []
    for length in range(min_length + more, min_length - 1, -1):
        ends = [end for end in range(length, len(text)) if text[end - length : end] == text[len(text) - length :]]
        if ends:
            found = [text[ends[-1]]]
            break
    assert index.continuation(1) == found


def test_rows_have_texts_of_their_own_which_end_when_the_row_is_freed():
    table = SimpleNamespace(token_ids=np.zeros((2, 20), np.int32), num_tokens=np.array([5, 5], np.int32))
    table.token_ids[:, :5] = [[1, 2, 3, 1, 2], [1, 2, 9, 1, 2]]
    lookup = PromptLookup(table, min_length=2, max_length=3)
    assert lookup.propose({0: 2, 1: 1}) == {0: [3, 1], 1: [9]}
    table.token_ids[0, 5] = 3
    table.num_tokens[0] = 6
    assert lookup.propose({0: 2}) == {0: [1, 2]}
    lookup.apply(step(freed_rows=(0,)))
    table.token_ids[0, :4] = [5, 6, 5, 6]
    table.num_tokens[0] = 4
    assert lookup.propose({0: 2}) == {0: [5, 6]}
    assert (lookup.pass_s(8), lookup.num_missing(0)) == (0, 0)
