"""Tokenizer: ids as transformers and SentencePiece have them, text back from them, BOS exactly once."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, processors

from octavo.engine.tokenizer import Tokenizer
from octavo.weights.checkpoint import open_checkpoint
from octavo.weights.gguf_file import GGUFFile
from octavo.weights.gguf_metadata import read_vocab_size
from octavo.weights.source import CheckpointError
from octavo.weights.tokenizer_spec import TokenizerSpec, TokenType
from tests.engine.small_tokenizers import (
    SENTENCEPIECE_PIECES,
    byte_level_metadata,
    byte_level_tokenizer,
    gguf_tokenizer,
    sentencepiece_metadata,
    trained_byte_level,
)

GOLDEN = Path(__file__).parent / "golden" / "smollm2_tokens.json"

# A fixture that nothing changes may serve all examples; a busy machine may be slow.
shared_fixture = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def demo_tokenizer(demo_model_path: Path) -> Tokenizer:
    return Tokenizer(open_checkpoint(demo_model_path).tokenizer_spec)


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(GOLDEN.read_text())
    return loaded


@pytest.mark.model
def test_ids_of_the_demo_model_are_those_of_transformers(demo_tokenizer: Tokenizer, golden: dict[str, Any]) -> None:
    for entry in golden["texts"]:
        assert demo_tokenizer.encode(entry["text"], add_special_tokens=True) == entry["ids"], entry["text"]


@pytest.mark.model
def test_text_of_the_demo_model_is_that_of_transformers(demo_tokenizer: Tokenizer, golden: dict[str, Any]) -> None:
    for entry in golden["texts"]:
        ids = entry["ids"]
        assert demo_tokenizer.decode(ids, skip_special_tokens=False) == entry["decoded"]
        assert demo_tokenizer.decode(ids, skip_special_tokens=True) == entry["decoded_without_special_tokens"]


@pytest.mark.model
def test_chats_of_the_demo_model_are_those_of_transformers(demo_tokenizer: Tokenizer, golden: dict[str, Any]) -> None:
    for chat in golden["chats"]:
        prompt = demo_tokenizer.apply_chat_template(chat["messages"])
        assert prompt == chat["prompt"]
        assert demo_tokenizer.encode(prompt, add_special_tokens=False) == chat["ids"]


@shared_fixture
@given(text=st.text())
def test_text_survives_byte_level_bpe(byte_level: Tokenizer, text: str) -> None:
    ids = byte_level.encode(text, add_special_tokens=True)
    assert byte_level.decode(ids, skip_special_tokens=False) == text
    assert b"".join(byte_level.token_bytes(i) for i in ids) == text.encode()


@shared_fixture
@given(text=st.text().filter(lambda text: "▁" not in text))  # which is SentencePiece's way to write a space
def test_text_survives_sentencepiece(sentencepiece: Tokenizer, text: str) -> None:
    ids = sentencepiece.encode(text, add_special_tokens=True)
    assert sentencepiece.decode(ids, skip_special_tokens=True) == text


@shared_fixture
@given(text=st.text("the lo.n안녕é🙂\n", max_size=40))
def test_ids_are_those_of_sentencepiece(sentencepiece: Tokenizer, text: str) -> None:
    assert sentencepiece.encode(text, add_special_tokens=False) == sentencepiece_ids(text)


def sentencepiece_ids(text: str) -> list[int]:
    """SentencePiece's own rule: merge the neighbours whose union scores best, the leftmost of equals, while any do."""
    if not text:
        return []
    id_by_piece = {piece: 259 + i for i, piece in enumerate(SENTENCEPIECE_PIECES)}
    symbols = list(f" {text}".replace(" ", "▁"))
    while True:
        unions = [(id_by_piece.get(a + b, 0), -i) for i, (a, b) in enumerate(pairwise(symbols))]
        best, place = max(unions, default=(0, 0))
        if best == 0:
            break
        symbols[-place : -place + 2] = ["".join(symbols[-place : -place + 2])]
    ids = []
    for symbol in symbols:
        ids += [id_by_piece[symbol]] if symbol in id_by_piece else [3 + byte for byte in symbol.encode()]
    return ids


def test_decodes_as_the_library_does(tokenizer: Tokenizer) -> None:
    library = tokenizer._tokenizer
    for text in ("the lighthouse", "  안녕 👩‍👩‍👧", " leading", "hello\n\nthere", "<s>hello</s>", "<|user|>hi<|end|>"):
        ids = tokenizer.encode(text, add_special_tokens=True)
        for skip in (True, False):
            assert tokenizer.decode(ids, skip_special_tokens=skip) == library.decode(ids, skip_special_tokens=skip)


def test_gguf_and_json_make_the_same_tokenizer(byte_level: Tokenizer, tmp_path: Path) -> None:
    from_gguf = gguf_tokenizer(tmp_path, byte_level_metadata())
    assert from_gguf.vocab_size == byte_level.vocab_size
    for text in ("the other lighthouse", "안녕 세상 👩‍👩‍👧", "<|user|>x = 12345<|end|>", "  the\n\nkeeper "):
        ids = byte_level.encode(text, add_special_tokens=False)
        assert from_gguf.encode(text, add_special_tokens=False) == ids
        assert from_gguf.decode(ids, skip_special_tokens=True) == byte_level.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("gpt-2", ["12345", "don", "'", "T", "\n", "\n", "x"]),
        ("smollm", ["1", "2", "3", "4", "5", "don", "'", "T", "\n", "\n", "x"]),
        ("qwen2", ["1", "2", "3", "4", "5", "don", "'T", "\n\n", "x"]),
        ("llama-bpe", ["123", "45", "don", "'T", "\n\n", "x"]),
    ],
)
def test_each_pre_tokenizer_cuts_words_its_own_way(tmp_path: Path, pre: str, pieces: list[str]) -> None:
    merges = ["1 2", "12 3", "4 5", "123 45", "' T", "d o", "do n", "don 'T", "Ċ Ċ"]
    tokenizer = gguf_tokenizer(tmp_path, metadata_of_merges(pre, merges))
    ids = tokenizer.encode("12345don'T\n\nx", add_special_tokens=False)
    assert [tokenizer.decode([i], skip_special_tokens=False) for i in ids] == pieces


@pytest.mark.parametrize(("pre", "num_tokens"), [("gpt-2", 3), ("llama-bpe", 1)])
def test_llama_3_takes_a_word_that_is_a_token_whole(tmp_path: Path, pre: str, num_tokens: int) -> None:
    metadata = metadata_of_merges(pre, ["b c", "a bc"])
    metadata["tokenizer.ggml.merges"] = []
    assert len(gguf_tokenizer(tmp_path, metadata).encode("abc", add_special_tokens=False)) == num_tokens


def metadata_of_merges(pre: str, merges: list[str]) -> dict[str, Any]:
    """A byte-level tokenizer of the bytes and the results of these merges."""
    alphabet = [token for token in byte_level_metadata()["tokenizer.ggml.tokens"] if len(token) == 1]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": alphabet + [merge.replace(" ", "") for merge in merges],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 0,
    }


def test_bos_is_added_once(sentencepiece: Tokenizer) -> None:
    plain = sentencepiece.encode("hello", add_special_tokens=False)
    assert plain == [259 + SENTENCEPIECE_PIECES.index("▁hello")]
    assert sentencepiece.encode("hello", add_special_tokens=True) == [1, *plain]
    assert sentencepiece.encode("", add_special_tokens=True) == [1]
    assert sentencepiece.encode("", add_special_tokens=False) == []


def test_bos_is_not_added_to_text_that_begins_with_it(sentencepiece: Tokenizer) -> None:
    ids = sentencepiece.encode("<s>hello", add_special_tokens=False)
    assert ids[0] == 1 and 1 not in ids[1:]
    assert sentencepiece.encode("<s>hello", add_special_tokens=True) == ids


@pytest.mark.parametrize(("add_bos_token", "expected"), [(True, [1]), (False, []), (None, [1])])
def test_bos_follows_the_gguf_flag(tmp_path: Path, add_bos_token: bool | None, expected: list[int]) -> None:
    flag = {} if add_bos_token is None else {"tokenizer.ggml.add_bos_token": add_bos_token}
    tokenizer = gguf_tokenizer(tmp_path, sentencepiece_metadata() | flag)
    assert tokenizer.encode("", add_special_tokens=True) == expected


@pytest.mark.parametrize("adds_bos", [True, False, None])
def test_bos_follows_the_flag_and_else_the_post_processor(tmp_path: Path, adds_bos: bool | None) -> None:
    library = tokenizers.Tokenizer.from_str(trained_byte_level().to_str())
    user_id = library.token_to_id("<|user|>")
    library.post_processor = processors.TemplateProcessing("<|user|> $A", special_tokens=[("<|user|>", user_id)])
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(TokenizerSpec(tmp_path / "tokenizer.json", None, "<|user|>", None, adds_bos))
    plain = tokenizer.encode("hi", add_special_tokens=False)
    before = [] if adds_bos is False else [user_id]
    assert tokenizer.encode("hi", add_special_tokens=True) == before + plain


def test_a_bos_token_to_add_must_exist(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="'<bos>' is not in the vocabulary"):
        byte_level_tokenizer(tmp_path, bos_token="<bos>", adds_bos=True)


def test_special_tokens_in_text_become_their_ids(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("<|user|>the<|end|>", add_special_tokens=False)
    assert [i for i in ids if byte_level.is_special(i)] == [1, 0]
    assert byte_level.decode(ids, skip_special_tokens=True) == "the"
    assert byte_level.decode(ids, skip_special_tokens=False) == "<|user|>the<|end|>"


def test_a_continuation_keeps_its_leading_space(sentencepiece: Tokenizer) -> None:
    [hello] = sentencepiece.encode("hello", add_special_tokens=False)
    assert sentencepiece.decode([hello], skip_special_tokens=True) == "hello"
    assert sentencepiece.decode([hello], skip_special_tokens=True, is_continuation=True) == " hello"


def test_bytes_of_tokens(sentencepiece: Tokenizer) -> None:
    assert sentencepiece.token_bytes(3 + 0xED) == b"\xed"
    assert sentencepiece.token_bytes(sentencepiece.vocab_size - 1) == b" t"
    assert sentencepiece.token_bytes(1) == b"<s>"


def test_invalid_bytes_become_replacement_characters(sentencepiece: Tokenizer) -> None:
    ids = [3 + byte for byte in b"\xed\x95a\xff\xec\x95\x88"]
    assert sentencepiece.decode(ids, skip_special_tokens=True) == "\ufffda\ufffd안"


@pytest.mark.parametrize("token_id", [-1, 10**6])
def test_ids_outside_the_vocabulary_are_refused(tokenizer: Tokenizer, token_id: int) -> None:
    with pytest.raises(ValueError, match=f"token id {token_id} is outside .* 0 to {tokenizer.vocab_size - 1}"):
        tokenizer.decode([token_id], skip_special_tokens=True)


def test_padding_of_the_vocabulary_is_not_part_of_it(tmp_path: Path) -> None:
    metadata = byte_level_metadata()
    size = len(metadata["tokenizer.ggml.tokens"])
    metadata["tokenizer.ggml.tokens"] += [f"[PAD{i}]" for i in range(size, size + 5)]
    metadata["tokenizer.ggml.token_type"] += [int(TokenType.UNUSED)] * 5
    assert gguf_tokenizer(tmp_path, metadata).vocab_size == size
    assert read_vocab_size(GGUFFile(tmp_path / "tokenizer.gguf")) == size


def test_the_size_is_known_without_a_tokenizer(tiny_model: Path, tiny_tokenizer: Tokenizer) -> None:
    assert open_checkpoint(tiny_model).vocab_size == tiny_tokenizer.vocab_size


@pytest.mark.model
def test_the_size_of_the_demo_vocabulary(demo_model_path: Path, demo_tokenizer: Tokenizer) -> None:
    assert open_checkpoint(demo_model_path).vocab_size == demo_tokenizer.vocab_size


def test_half_a_surrogate_pair_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match="half a surrogate pair at character 3"):
        tokenizer.encode("abc\ud83d", add_special_tokens=True)


def test_truncation_and_padding_of_the_file_are_ignored(tmp_path: Path) -> None:
    library = tokenizers.Tokenizer.from_str(trained_byte_level().to_str())
    library.enable_truncation(3)
    library.enable_padding(length=50)
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(TokenizerSpec(tmp_path / "tokenizer.json", None, None, None, None))
    assert len(tokenizer.encode("xyz" * 5, add_special_tokens=True)) == 15


def test_threads_share_a_tokenizer(byte_level: Tokenizer) -> None:
    texts = [f"the lighthouse {i} 안녕" for i in range(200)]
    expected = [byte_level.encode(text, add_special_tokens=False) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda text: byte_level.encode(text, add_special_tokens=False), texts)) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer.ggml.model": "t5"}, "GGUF tokenizer 't5' is not supported"),
        ({"tokenizer.ggml.pre": "tekken"}, "GGUF pre-tokenizer 'tekken' is not supported; octavo knows gpt-2, smollm"),
        ({"tokenizer.ggml.merges": ["nospace"]}, "'nospace' is not two tokens"),
        ({"tokenizer.ggml.merges": ["unheard of"]}, "cannot be built"),
        ({"tokenizer.ggml.token_type": [1, 1]}, "2 token types"),
        ({"tokenizer.ggml.eos_token_id": 400}, "eos_token_id is 400; the vocabulary has \\d+ tokens"),
    ],
)
def test_what_cannot_be_built_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        gguf_tokenizer(tmp_path, byte_level_metadata() | changes)


def test_a_sentencepiece_vocabulary_needs_scores(tmp_path: Path) -> None:
    metadata = sentencepiece_metadata()
    del metadata["tokenizer.ggml.scores"]
    with pytest.raises(CheckpointError, match=r"no tokenizer\.ggml\.scores"):
        gguf_tokenizer(tmp_path, metadata)


def test_an_unknown_decoder_is_named(tmp_path: Path) -> None:
    library = tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0}))
    library.decoder = decoders.WordPiece()
    library.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(CheckpointError, match="WordPiece"):
        Tokenizer(TokenizerSpec(tmp_path / "tokenizer.json", None, None, None, None))


def test_a_damaged_tokenizer_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"')
    with pytest.raises(CheckpointError, match="cannot be built"):
        Tokenizer(TokenizerSpec(tmp_path / "tokenizer.json", None, None, None, None))
