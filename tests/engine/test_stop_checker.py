"""StopChecker against the plain definition: cut the whole text where the first stop string ends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.engine.stop_checker import StopChecker


def run(checker: StopChecker, deltas: Sequence[str]) -> tuple[list[str], str | None]:
    """What the checker passes on for each piece, with what is left at the end, and the stop string."""
    passed = []
    for delta in deltas:
        text, stop = checker.add(delta)
        passed.append(text)
        if stop is not None:
            return passed, stop
    return [*passed, checker.finish()], None


def cut(text: str, stops: Sequence[str], *, include_stop: bool, first_end: int = 0) -> tuple[str, str | None]:
    """The plain definition. Only a stop string that ends after `first_end` characters counts."""
    for end in range(first_end + 1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            stop = max(complete, key=len)
            return text[: end if include_stop else end - len(stop)], stop
    return text, None


SHORT_TEXT = st.text("ab", min_size=1, max_size=4)  # few letters, so that stop strings overlap and nearly match


@settings(deadline=None)
@given(
    deltas=st.lists(st.text("abc", max_size=5), max_size=12),
    stops=st.lists(SHORT_TEXT, max_size=3),
    include_stop=st.booleans(),
)
def test_cuts_where_the_whole_text_would_be_cut(deltas: list[str], stops: list[str], include_stop: bool) -> None:
    passed, stop = run(StopChecker(stops, include_stop_str_in_output=include_stop), deltas)
    assert ("".join(passed), stop) == cut("".join(deltas), stops, include_stop=include_stop)


@settings(deadline=None)
@given(
    early=st.lists(st.text("abc", max_size=4), max_size=4),
    late=st.lists(st.text("abc", max_size=4), max_size=6),
    stops=st.lists(SHORT_TEXT, min_size=1, max_size=3),
)
def test_a_stop_that_ends_in_early_text_is_ignored(early: list[str], late: list[str], stops: list[str]) -> None:
    checker = StopChecker(stops)
    passed = []
    for delta in early:
        text, stop = checker.add(delta, can_stop=False)
        assert stop is None
        passed.append(text)
    late_passed, stop = run(checker, late)
    expected = cut("".join(early + late), stops, include_stop=False, first_end=len("".join(early)))
    assert ("".join(passed + late_passed), stop) == expected


@settings(deadline=None)
@given(deltas=st.lists(st.text("abc", max_size=5), max_size=8), stops=st.lists(SHORT_TEXT, max_size=3))
def test_holds_back_no_more_than_may_become_a_stop(deltas: list[str], stops: list[str]) -> None:
    checker = StopChecker(stops)
    seen = passed = ""
    for delta in deltas:
        seen += delta
        text, stop = checker.add(delta)
        if stop is not None:
            return
        passed += text
        held = seen.removeprefix(passed)
        assert passed + held == seen
        assert not held or any(stop.startswith(held) for stop in stops)


def test_stop_string_over_three_tokens() -> None:
    checker = StopChecker(["<stop>"])
    assert checker.add("a<s") == ("a", None)
    assert checker.add("to") == ("", None)
    assert checker.add("p> b") == ("", "<stop>")


def test_what_only_looked_like_a_stop_is_passed_on() -> None:
    checker = StopChecker(["<stop>"])
    assert checker.add("a<sto") == ("a", None)
    assert checker.add("ne") == ("<stone", None)
    assert checker.finish() == ""


@pytest.mark.parametrize("deltas", [["abcd"], ["abc", "d"], ["a", "b", "c", "d"]])
def test_the_stop_that_ends_first_wins_however_the_text_comes(deltas: list[str]) -> None:
    passed, stop = run(StopChecker(["abcd", "bc"]), deltas)
    assert ("".join(passed), stop) == ("a", "bc")


def test_a_long_stop_string_is_found_where_it_ends() -> None:
    checker = StopChecker(["a" * 20_000 + "b"])
    for _ in range(200):
        checker.add("a" * 100)
    text, stop = checker.add("a" * 50 + "b")
    assert (text, stop) == ("a" * 50, "a" * 20_000 + "b")
