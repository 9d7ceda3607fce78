"""Fixtures for every test."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from octavo.engine.tokenizer import Tokenizer
from octavo.weights.checkpoint import open_checkpoint
from tests.engine.tiny_model import write_tiny_model
from tools import fetch_model

# The same examples at each run, however slow the machine is.
settings.register_profile("octavo", derandomize=True, deadline=None)
settings.load_profile("octavo")


@pytest.fixture(scope="session")
def demo_model_path() -> Path:
    """The demo model on disk, for tests marked `model`; a machine without it fails them and says how to get it."""
    path = fetch_model.model_path()
    if not path.exists():
        pytest.fail(f"{path} is missing: run `make model`, or leave these tests out with `pytest -m 'not model'`")
    return path


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that answers in milliseconds."""
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_model: Path) -> Tokenizer:
    """Its tokenizer: one token a byte."""
    return Tokenizer(open_checkpoint(tiny_model).tokenizer_spec)
