from __future__ import annotations

from collections.abc import Callable

import pytest

from octavo.spec_decode.draft_budget import PLAIN_STEP_INTERVAL, AcceptanceRate, DraftBudget, Outlook

FREE = lambda num_tokens: 0.0  # noqa: E731
ROW = Outlook(0, max_drafts=8, num_missing=0, num_to_come=100)


def budget_of(
    base_ms: float,
    token_ms: float,
    rate: float,
    pass_s: Callable[[int], float] = FREE,
    *,
    num_rows: int = 1,
    max_drafts: int = 8,
) -> DraftBudget:
    """A budget that has seen steps of this cost, and guesses of these rows that were right so often."""
    budget = DraftBudget(max_drafts, pass_s)
    for num_tokens in (num_rows, 3 * num_rows, num_rows, 5 * num_rows) * 8:
        budget.observe_step(num_tokens, (base_ms + token_ms * num_tokens) / 1000)
    for row in range(num_rows):
        for guess in range(100):
            is_right = int(guess * rate) < int((guess + 1) * rate)
            budget.observe_guess(row, int(is_right), is_wrong=not is_right)
    budget.allot([ROW])  # which spends what it has saved for exploring
    return budget


def best_number(base_ms: float, token_ms: float, rate: float, pass_ms: float = 0.0) -> int:
    """Of drafts for one row, by trying all of them."""

    def speed(num_drafts: int) -> float:
        tokens = 1 + sum(rate**depth for depth in range(1, num_drafts + 1))
        return tokens / (base_ms + token_ms * (1 + num_drafts) + pass_ms * num_drafts)

    return max(range(9), key=speed)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("token_ms", [0.5, 5.0, 20.0, 60.0])
def test_a_row_gets_about_as_many_drafts_as_are_fastest(rate, token_ms):
    seen = budget_of(100, token_ms, rate).allot([ROW]).get(0, 0)
    near = {best_number(100, token_ms, min(1.0, max(0.0, rate + error))) for error in (-0.12, 0.0, 0.12)}
    assert min(near) <= seen <= max(near)


def test_guesses_that_take_a_pass_each_must_pay_for_it():
    def pass_s(num_tokens: int) -> float:
        return 0.04 + 0.001 * num_tokens

    assert budget_of(100, 5, 0.9).allot([ROW])[0] > budget_of(100, 5, 0.9, pass_s).allot([ROW])[0] > 0
    assert budget_of(100, 5, 0.4, pass_s).allot([ROW]) == {}


def test_rows_share_the_time_of_a_step_and_of_a_pass():
    def pass_s(num_tokens: int) -> float:
        return 0.04 + 0.002 * num_tokens

    rows = [Outlook(row, 8, 0, 100) for row in range(4)]
    numbers = budget_of(100, 10, 0.8, pass_s, num_rows=4).allot(rows)
    assert numbers.keys() == {0, 1, 2, 3}
    assert budget_of(400, 10, 0.8, lambda num_tokens: 4 * pass_s(num_tokens), num_rows=1).allot([ROW]).keys() == {0}
    assert budget_of(100, 90, 0.8, pass_s, num_rows=4).allot(rows) == {}  # nothing to share


def test_it_says_why_there_are_none():
    budget = budget_of(10, 100, 0.5)
    assert budget.allot([ROW]) == {}
    assert "a draft takes 100.0 ms" in budget.reason and "a token takes 110.0 ms" in budget.reason
    budget = budget_of(100, 1, 0.9)
    assert budget.allot([ROW]) and budget.reason == ""


def test_rows_with_bad_guesses_get_fewer_than_rows_with_good_ones():
    budget = budget_of(100, 10, 0.9, num_rows=2)
    for _ in range(20):
        budget.observe_guess(1, 0, is_wrong=True)
    numbers = budget.allot([Outlook(row, 8, 0, 100) for row in range(2)])
    assert numbers.get(0, 0) > numbers.get(1, 0)
    budget.forget(1)
    assert budget.allot([Outlook(1, 8, 0, 100)])[1] > 0  # another request's row


def test_a_new_row_is_trusted_less_than_one_that_has_been_right():
    budget = budget_of(100, 10, 0.98)
    numbers = budget.allot([ROW, Outlook(1, 8, 0, 100)])
    assert numbers[0] > numbers[1] > 0


def test_a_row_gets_no_more_than_it_has_room_for():
    budget = budget_of(100, 1, 0.9, num_rows=3)
    assert budget.allot([Outlook(0, 2, 0, 100), Outlook(1, 0, 0, 100), ROW])[0] >= 1
    assert budget.allot([Outlook(0, 2, 0, 100)]) == {0: 2}
    assert budget.allot([Outlook(0, 0, 0, 0)]) == {}
    assert budget.allot([]) == {}


def test_a_long_text_that_must_be_read_first_has_to_pay():
    def pass_s(num_tokens: int) -> float:
        return 0.002 + 0.002 * num_tokens

    budget = budget_of(100, 1, 0.9, pass_s)
    assert budget.allot([Outlook(0, 8, 1000, 300)])[0] > 0
    assert budget.allot([Outlook(0, 8, 1000, 20)]) == {}


def test_before_it_is_known_what_a_token_adds_one_draft_is_tried():
    budget = DraftBudget(4, FREE)
    for _ in range(3):
        budget.observe_step(1, 0.1)
    assert budget.allot([ROW]) == {0: 1}
    budget.observe_step(2, 0.101)
    assert budget.allot([ROW]) == {0: 4}


def test_a_step_that_was_held_up_does_not_count_in_full():
    budget = budget_of(100, 10, 0.9)
    before = budget.allot([ROW])[0]
    budget.observe_step(before, 10.0)
    assert budget.allot([ROW])[0] > 1


def test_now_and_then_a_step_sees_what_the_other_way_costs():
    budget = budget_of(100, 1, 0.9)
    numbers = [len(budget.allot([ROW])) for _ in range(2 * PLAIN_STEP_INTERVAL)]
    assert numbers.count(0) == 2
    budget = budget_of(10, 100, 0.1)
    num_explored, num_steps = 0, 2000
    for _ in range(num_steps):
        budget.observe_step(1, 0.11)
        num_explored += len(budget.allot([ROW]))
    assert 0 < num_explored * 0.1 <= 0.011 * num_steps * 0.11


def test_of_equal_steps_a_line_is_level_and_what_never_was_seen_is_as_expected():
    rate = AcceptanceRate(0.9, 4.0)
    assert rate.rate(0.25) == 0.25
    rate.observe(4, 0)
    assert 0.5 < rate.rate(0.25) < 1
    for _ in range(100):
        rate.observe(0, 1)
    assert rate.rate(0.25) < 0.1
