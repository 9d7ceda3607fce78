from __future__ import annotations

import pytest

from octavo.core.request import Request
from octavo.core.row_map import RowMap
from tests.core.engine_requests import make_request


def test_rows_are_given_taken_back_and_told_once():
    rows = RowMap(2)
    first, second, third = [Request(make_request(f"{i}", [1]), 0, (0, i, 0), 10) for i in range(3)]
    rows.take(first)
    rows.take(second)
    assert (first.row, second.row, rows.num_free) == (0, 1, 0)
    assert (rows[0], rows[1]) == (first, second)
    with pytest.raises(IndexError):
        rows.take(third)
    rows.give_back(first)
    assert (first.row, rows.num_free) == (-1, 1)
    with pytest.raises(KeyError):
        rows[0]
    rows.take(third)
    assert (third.row, rows[0]) == (0, third)
    assert rows.take_freed() == (0,)
    assert rows.take_freed() == ()
