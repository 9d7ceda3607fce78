from __future__ import annotations

import pytest

from octavo.core.sampling_params import ParameterError
from octavo.engine.bad_words import MAX_BAD_WORD_CHARS, tokenize_bad_words
from tests.engine.small_tokenizers import byte_level_tokenizer, gguf_tokenizer, sentencepiece_metadata
from tests.engine.tiny_model import NUM_TOKENS, byte_id


@pytest.fixture
def byte_level(tmp_path):
    return byte_level_tokenizer(tmp_path)


@pytest.fixture
def sentencepiece(tmp_path):
    return gguf_tokenizer(tmp_path, sentencepiece_metadata())


def ids(tokenizer, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(text, add_special_tokens=False))


def test_a_word_is_banned_at_the_beginning_and_within_a_text(byte_level):
    for word, num_tokens in (("keeper", (2, 1)), ("the", (1, 1))):
        first, inner = ids(byte_level, word), ids(byte_level, " " + word)
        assert (len(first), len(inner)) == num_tokens and first != inner
        for spelling in (word, " " + word):
            assert tokenize_bad_words([spelling], byte_level, 400) == (first, inner)


def test_a_space_that_is_a_token_of_its_own_makes_no_second_sequence(byte_level, tiny_tokenizer):
    for tokenizer, word in ((byte_level, "yyy"), (tiny_tokenizer, "no")):
        assert ids(tokenizer, " " + word)[1:] == ids(tokenizer, word)
        assert tokenize_bad_words([word], tokenizer, 10**6) == (ids(tokenizer, word),)


def test_a_tokenizer_that_writes_a_space_before_every_text(sentencepiece):
    (sequence,) = tokenize_bad_words(["hello"], sentencepiece, 10**6)
    assert sentencepiece.decode(sequence, skip_special_tokens=False, is_continuation=True) == " hello"


def test_the_same_sequence_counts_once(tiny_tokenizer):
    expected = (tuple(map(byte_id, b"a")), tuple(map(byte_id, b"bc")))
    assert tokenize_bad_words(["a", " a", "bc", "a"], tiny_tokenizer, NUM_TOKENS) == expected
    assert tokenize_bad_words([], tiny_tokenizer, NUM_TOKENS) == ()


def test_what_the_model_cannot_generate_needs_no_ban(tiny_tokenizer):
    assert tokenize_bad_words(["ab", "b"], tiny_tokenizer, byte_id(ord("b"))) == ()


def test_white_space_can_be_banned_too(tiny_tokenizer):
    space, newline = byte_id(ord(" ")), byte_id(ord("\n"))
    assert tokenize_bad_words(["\n", " \n\n"], tiny_tokenizer, NUM_TOKENS) == ((newline,), (newline, newline))
    assert tokenize_bad_words([" "], tiny_tokenizer, NUM_TOKENS) == ((space,),)


def test_what_has_no_tokens_is_refused(tiny_tokenizer, monkeypatch):
    with pytest.raises(ParameterError, match="surrogate") as refusal:
        tokenize_bad_words(["fine", "\ud800"], tiny_tokenizer, NUM_TOKENS)
    assert refusal.value.param == "bad_words"
    monkeypatch.setattr(tiny_tokenizer, "encode", lambda text, add_special_tokens: [])
    with pytest.raises(ParameterError, match="holds 'unknown', which has no tokens") as refusal:
        tokenize_bad_words(["unknown"], tiny_tokenizer, NUM_TOKENS)
    assert refusal.value.param == "bad_words"


def test_the_limit_is_named(tiny_tokenizer):
    assert tokenize_bad_words(["x" * (MAX_BAD_WORD_CHARS - 1), "y"], tiny_tokenizer, NUM_TOKENS)
    with pytest.raises(ParameterError, match=f"10001 characters; at most {MAX_BAD_WORD_CHARS}"):
        tokenize_bad_words(["x" * MAX_BAD_WORD_CHARS, "y"], tiny_tokenizer, NUM_TOKENS)
