"""Small tokenizers for the tests of the engine."""

from __future__ import annotations

import pytest

from octavo.engine.tokenizer import Tokenizer
from tests.engine.small_tokenizers import byte_level_tokenizer, gguf_tokenizer, sentencepiece_metadata


@pytest.fixture(scope="session")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Byte-level BPE, read from a tokenizer.json."""
    return byte_level_tokenizer(tmp_path_factory.mktemp("byte_level"))


@pytest.fixture(scope="session")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """SentencePiece BPE with byte fallback, read from GGUF; text begins with its BOS token."""
    return gguf_tokenizer(tmp_path_factory.mktemp("sentencepiece"), sentencepiece_metadata())


@pytest.fixture(params=["byte_level", "sentencepiece"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """Each of the two."""
    found: Tokenizer = request.getfixturevalue(request.param)
    return found
