"""Detokenizer: pieces that together are the whole text, and never half a character."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.engine.detokenizer import Detokenizer
from octavo.engine.tokenizer import Tokenizer
from tests.engine.small_tokenizers import SENTENCEPIECE_PIECES

shared_fixture = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

HARD_TEXTS = [
    "👩‍👩‍👧‍👦 family",
    "🇩🇪🇰🇷 flags, 👍🏽 skin",
    "안녕하세요 세계",
    "한글",  # decomposed
    "e\u0301\u0302\u0303 zalgo",
    "a genuine \ufffd stays",
    "\ufffd",
    "𝔘 and \x00 and \U0010ffff",
    " leading and  double spaces ",
]


def deltas_of(tokenizer: Tokenizer, token_ids: list[int], *, skip_special_tokens: bool = True) -> list[str]:
    detokenizer = Detokenizer(tokenizer, skip_special_tokens=skip_special_tokens)
    return [*(detokenizer.add(token_id) for token_id in token_ids), detokenizer.finish()]


@shared_fixture
@given(data=st.data(), skip=st.booleans())
def test_deltas_are_the_whole_text_for_any_ids(tokenizer: Tokenizer, data: st.DataObject, skip: bool) -> None:
    token_ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=40))
    whole = tokenizer.decode(token_ids, skip_special_tokens=skip, is_continuation=True)
    assert "".join(deltas_of(tokenizer, token_ids, skip_special_tokens=skip)) == whole


@shared_fixture
@given(data=st.data())
def test_deltas_are_the_whole_text_for_any_bytes(sentencepiece: Tokenizer, data: st.DataObject) -> None:
    byte_ids = st.binary(max_size=30).map(lambda raw: [3 + byte for byte in raw])
    token_ids = data.draw(byte_ids)
    whole = sentencepiece.decode(token_ids, skip_special_tokens=True, is_continuation=True)
    assert "".join(deltas_of(sentencepiece, token_ids)) == whole


@shared_fixture
@given(text=st.text())
def test_no_delta_holds_part_of_a_character(tokenizer: Tokenizer, text: str) -> None:
    check_whole_characters(tokenizer, text)


@pytest.mark.parametrize("text", HARD_TEXTS)
def test_no_delta_holds_part_of_a_hard_character(tokenizer: Tokenizer, text: str) -> None:
    check_whole_characters(tokenizer, text)


def check_whole_characters(tokenizer: Tokenizer, text: str) -> None:
    """Every delta adds characters of the text itself, and at most three bytes of it are still to come."""
    token_ids = tokenizer.encode(text, add_special_tokens=False)
    data = b"".join(tokenizer.token_bytes(token_id) for token_id in token_ids)
    detokenizer = Detokenizer(tokenizer)
    num_seen_bytes, seen = 0, ""
    for token_id in token_ids:
        num_seen_bytes += len(tokenizer.token_bytes(token_id))
        seen += detokenizer.add(token_id)
        assert data.decode().startswith(seen)
        assert num_seen_bytes - len(seen.encode()) <= 3
    assert seen == data.decode()
    assert detokenizer.finish() == ""


def test_invalid_bytes_come_as_soon_as_they_are_known_to_be(sentencepiece: Tokenizer) -> None:
    byte_ids = [3 + byte for byte in b"\xff\xed\x95\xed\x95\x9c"]
    assert deltas_of(sentencepiece, byte_ids) == ["\ufffd", "", "", "\ufffd", "", "한", ""]


@pytest.mark.parametrize("text", ["é", "안", "🙂"])
def test_an_end_inside_a_character_is_flushed(sentencepiece: Tokenizer, text: str) -> None:
    for num_bytes in range(1, len(text.encode())):
        byte_ids = [3 + byte for byte in text.encode()[:num_bytes]]
        assert deltas_of(sentencepiece, byte_ids) == [""] * num_bytes + ["\ufffd"]


def test_a_skipped_special_token_does_not_break_a_character(sentencepiece: Tokenizer) -> None:
    byte_ids = [3 + byte for byte in "안".encode()]
    assert deltas_of(sentencepiece, [byte_ids[0], 2, byte_ids[1], byte_ids[2]]) == ["", "", "", "안", ""]


def test_special_tokens_are_text_if_they_are_not_skipped(byte_level: Tokenizer) -> None:
    assert deltas_of(byte_level, [1, 0], skip_special_tokens=True) == ["", "", ""]
    assert deltas_of(byte_level, [1, 0], skip_special_tokens=False) == ["<|user|>", "<|end|>", ""]


def test_the_space_before_the_first_word_is_kept(sentencepiece: Tokenizer) -> None:
    hello = 259 + SENTENCEPIECE_PIECES.index("▁hello")
    assert deltas_of(sentencepiece, [hello, hello]) == [" hello", " hello", ""]


def test_an_id_outside_the_vocabulary_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match="outside the vocabulary"):
        Detokenizer(tokenizer).add(tokenizer.vocab_size)
