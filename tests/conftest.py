"""Fixtures for every test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import fetch_model


@pytest.fixture(scope="session")
def demo_model_path() -> Path:
    """The demo model on disk, for tests marked `model`; a machine without it fails them and says how to get it."""
    path = fetch_model.model_path()
    if not path.exists():
        pytest.fail(f"{path} is missing: run `make model`, or leave these tests out with `pytest -m 'not model'`")
    return path
