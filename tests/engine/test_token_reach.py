"""The lower bound of the number of tokens holds for every text, and is worth something for long ones."""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from octavo.engine.token_decoder import read_token_decoder
from octavo.engine.token_reach import MAX_NFC_SHRINKAGE, TokenReach, read_token_reach
from tests.engine.small_tokenizers import gguf_tokenizer, sentencepiece_metadata, trained_byte_level

LONG_RUNS = st.builds(str.__mul__, st.text(min_size=1, max_size=3), st.integers(1, 200))
TEXTS = st.one_of(
    st.text(), LONG_RUNS, st.lists(st.sampled_from(["the ", "lighthouse", "<|end|>", "안녕", " " * 9])).map("".join)
)


def byte_level(normalizer: normalizers.Normalizer | None = None, without: str = "") -> Tokenizer:
    """With one long token for runs of spaces and one added; `without`: characters of the alphabet to leave out."""
    alphabet = [c for c in sorted(pre_tokenizers.ByteLevel.alphabet()) if c not in without]
    runs = ["Ġ" * 2**i for i in range(5)]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys([*alphabet, *runs]))}
    tokenizer = Tokenizer(models.BPE(vocabulary, [(run, run) for run in runs[:-1]]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|a_token_longer_than_any_run|>", special=True)])
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    return tokenizer


def reach_of(tokenizer: Tokenizer) -> TokenReach | None:
    return read_token_reach(tokenizer, tokenizer.get_vocab(), read_token_decoder(tokenizer))


TOKENIZERS = {
    "trained": trained_byte_level(),
    "runs": byte_level(),
    "composing": byte_level(normalizers.NFC()),
    "without some bytes": byte_level(without="aĊð"),
}


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path: Path = tmp_path_factory.mktemp("sentencepiece")
    return gguf_tokenizer(path, sentencepiece_metadata())._tokenizer


@given(TEXTS)
@settings(max_examples=60, deadline=None, derandomize=True)
@example(" " * 1000)
@example("a" * 1000)
@example("\N{GREEK PROSGEGRAMMENI}\N{COMBINING DIAERESIS}\N{COMBINING ACUTE ACCENT}" * 50)
@pytest.mark.parametrize("name", TOKENIZERS)
def test_no_text_has_fewer_tokens(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    reach = reach_of(tokenizer)
    assert reach is not None
    assert reach.min_num_tokens(text) <= len(tokenizer.encode(text).ids)


@given(TEXTS)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_no_text_has_fewer_tokens_of_sentencepiece(sentencepiece: Tokenizer, text: str) -> None:
    reach = reach_of(sentencepiece)
    assert reach is not None
    assert reach.min_num_tokens(text) <= len(sentencepiece.encode(text).ids)


def test_a_long_text_has_many() -> None:
    reach = reach_of(byte_level())
    assert reach == TokenReach(len("<|a_token_longer_than_any_run|>"), b"", composes=False)
    assert reach.min_num_tokens("x" * 3100) == 100
    assert reach.min_num_tokens("") == 0
    composing = reach_of(byte_level(normalizers.NFC()))
    assert composing is not None
    assert (composing.min_num_tokens("x" * 3100), composing.min_num_tokens("é" * 1550)) == (100, 25)


@pytest.mark.parametrize(
    "normalizer",
    [normalizers.Strip(), normalizers.Lowercase(), normalizers.NFKC(), normalizers.Replace("ab", "c"),
     normalizers.Replace(Regex("a+"), "a"), normalizers.Sequence([normalizers.NFC(), normalizers.StripAccents()])],
)  # fmt: skip
def test_nothing_is_said_of_what_shortens_a_text(normalizer: normalizers.Normalizer) -> None:
    assert reach_of(byte_level(normalizer)) is None


def test_nothing_is_said_of_what_drops_text() -> None:
    tokenizer = byte_level()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(" ", "removed"), tokenizer.pre_tokenizer])
    assert reach_of(tokenizer) is None
    assert reach_of(byte_level(normalizers.NFC(), without="a")) is None
    tokenizer = byte_level()
    tokenizer.add_special_tokens([AddedToken("<|greedy|>", special=True, lstrip=True)])
    assert reach_of(tokenizer) is None


def test_nfc_makes_no_text_shorter_than_that() -> None:
    """Weigh each character of NFD by the longest way to write it, in proportion; then every spelling is bounded."""
    weight: dict[str, float] = {}
    every = map(chr, range(sys.maxunicode + 1))
    characters = [c for c in every if unicodedata.category(c) not in ("Cn", "Co", "Cs")]
    for character in characters:
        parts = unicodedata.normalize("NFD", character)
        for part in parts:
            weight[part] = max(weight.get(part, 0), len(character.encode()) / len(parts))
    worst = 0.0
    for character in characters:
        if unicodedata.normalize("NFC", character) == character:
            longest = sum(weight[part] for part in unicodedata.normalize("NFD", character))
            worst = max(worst, longest / len(character.encode()))
    assert 3 < worst <= MAX_NFC_SHRINKAGE
