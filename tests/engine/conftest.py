"""A model to build engines from, and its tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.engine.tokenizer import Tokenizer
from octavo.weights.checkpoint import open_checkpoint
from tests.engine.tiny_model import write_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_model: Path) -> Tokenizer:
    return Tokenizer(open_checkpoint(tiny_model).tokenizer_spec)
