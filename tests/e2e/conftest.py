"""A model small enough to run whole scenarios in a second."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.tiny_model import write_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")
