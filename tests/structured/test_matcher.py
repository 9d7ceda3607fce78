"""Masks: what may follow, neither more nor less."""

from __future__ import annotations

import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.structured.byte_vocabulary import (
    EOS_IDS,
    FIRST_BYTE_ID,
    MARKER_ID,
    allowed_ids,
    compile_grammar,
    ids_of,
    is_match,
    text_of,
)

WORDS = st.text(st.sampled_from('ab"\\/\né😀 '), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(choices=st.lists(WORDS, min_size=1, max_size=5, unique=True), seed=st.integers(0, 99))
def test_of_choices_exactly_what_continues_one_is_allowed(choices, seed):
    rng = random.Random(seed)
    matcher = compile_grammar("choice", json.dumps(choices)).matcher()
    written: list[int] = []
    while True:
        going = [ids_of(choice) for choice in choices if ids_of(choice)[: len(written)] == written]
        expected = {ids[len(written)] for ids in going if len(ids) > len(written)}
        if written in going:
            expected.update(EOS_IDS)
        assert set(allowed_ids(matcher)) == expected
        token_id = rng.choice(sorted(expected))
        if token_id in EOS_IDS:
            break
        matcher.accept([token_id])
        written.append(token_id)
    assert text_of(written) in choices


REGEXES = [r"\d{3}-\d{2}", r"[a-c]+(x|yy)?", r"(ab|a)*c", r"a/b\\/\.", r"^[^\x00-\x60]{2}$", r"(?i:ab)\.?"]
REGEXES += ["é+|😀", "a\nb"]


@pytest.mark.parametrize("pattern", REGEXES)
def test_whatever_comes_of_a_pattern_matches_it(pattern):
    rng = random.Random(pattern)
    grammar = compile_grammar("regex", pattern)
    for _ in range(20):
        matcher = grammar.matcher()
        written: list[int] = []
        while (token_id := rng.choice(allowed_ids(matcher))) not in EOS_IDS:
            matcher.accept([token_id])
            written.append(token_id)
        assert re.fullmatch(pattern, text_of(written))


def test_digits_are_those_of_json():
    assert is_match(compile_grammar("regex", r"\d"), "7")
    assert not is_match(compile_grammar("regex", r"\d"), "٣")


def test_after_the_end_only_ends_follow():
    matcher = compile_grammar("regex", "ab?").matcher()
    matcher.accept(ids_of("a"))
    assert not matcher.is_complete
    assert set(allowed_ids(matcher)) == {*EOS_IDS, *ids_of("b")}
    for token_id in (*EOS_IDS, *EOS_IDS):
        matcher.accept([token_id])
        assert matcher.is_complete
        assert allowed_ids(matcher) == list(EOS_IDS)
    assert matcher.error is None
    matcher = compile_grammar("regex", "ab").matcher()
    matcher.accept(ids_of("ab"))
    assert matcher.is_complete  # though nothing has said so


def test_a_token_that_may_not_follow_is_an_error_for_good():
    matcher = compile_grammar("regex", "ab").matcher()
    matcher.accept(ids_of("b"))
    assert matcher.error is not None and "\n" not in matcher.error
    assert allowed_ids(matcher) == []
    matcher.accept(ids_of("a"))
    assert allowed_ids(matcher) == []


@pytest.mark.parametrize(
    ("kind", "source"), [("regex", "(ab|cd)*x"), ("json", '{"type":"array","items":{"type":"integer"}}')]
)
def test_what_comes_after_drafts_is_what_comes_once_they_are_tokens(kind, source):
    rng = random.Random(1)
    grammar = compile_grammar(kind, source)
    matcher = grammar.matcher()
    for _ in range(60):
        drafts: list[int] = []
        while going := [token_id for token_id in allowed_ids(matcher.after(drafts)) if token_id not in EOS_IDS]:
            if rng.random() < 0.3:
                break
            drafts.append(rng.choice(going))
        before = allowed_ids(matcher)
        follow = allowed_ids(matcher.after(drafts))
        assert matcher.num_allowed(drafts) == len(drafts)
        assert allowed_ids(matcher) == before
        matcher.accept(drafts)
        assert allowed_ids(matcher) == follow
        if matcher.is_complete:
            matcher = grammar.matcher()


def test_drafts_are_allowed_up_to_the_first_that_may_not_follow():
    matcher = compile_grammar("regex", "abc").matcher()
    assert matcher.num_allowed(ids_of("abx")) == 2
    assert matcher.num_allowed([*ids_of("abc"), EOS_IDS[0]]) == 4
    assert matcher.num_allowed(ids_of("x")) == 0
    assert allowed_ids(matcher.after(ids_of("x"))) == []
    assert matcher.error is None


def test_matchers_of_a_grammar_do_not_meet():
    grammar = compile_grammar("regex", "a|b")
    one, other = grammar.matcher(), grammar.matcher()
    one.accept(ids_of("a"))
    assert allowed_ids(other) == ids_of("ab")
    assert allowed_ids(one) == list(EOS_IDS)


def test_special_tokens_are_no_text_but_can_be_named():
    assert not {*EOS_IDS, MARKER_ID} & set(allowed_ids(compile_grammar("regex", "(?s:.+)").matcher()))
    for name in ("<mark>", f"<[{MARKER_ID}]>"):
        matcher = compile_grammar("grammar", f'start: {name} "a"').matcher()
        assert allowed_ids(matcher) == [MARKER_ID]
        matcher.accept([MARKER_ID])
        assert allowed_ids(matcher) == ids_of("a")


def test_what_is_certain_may_be_written_in_any_tokens():
    matcher = compile_grammar("json", '{"const":"abc"}').matcher()
    assert allowed_ids(matcher) == [FIRST_BYTE_ID + ord('"')]


def test_a_grammar_may_come_in_ebnf():
    grammar = compile_grammar("grammar", 'root ::= "a" rest # ends\nrest ::= [x-z]{2} | "é"')
    assert is_match(grammar, "axz") and is_match(grammar, "aé")
    assert not is_match(grammar, "ax") and not is_match(grammar, "axzz")


def test_json_has_few_blanks_and_no_text_around():
    grammar = compile_grammar("json", '{"type":"object"}')
    for text in ('{"a":1}', '{"a": [1, 2]}', '{\n  "a": {\n    "b": 1\n  }\n}', "{ }"):
        assert is_match(grammar, text), text
    for text in ('{"a":  1}', "{\n\n}", ' {"a":1}', '{"a":1} ', "[1]", '{"a":1'):
        assert not is_match(grammar, text), text
