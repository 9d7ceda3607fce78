"""The backends, and models made ready to run on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.backends.native.backend import NativeBackend
from octavo.backends.ops import Backend
from octavo.backends.reference.backend import ReferenceBackend
from octavo.weights.checkpoint import open_checkpoint
from tests.e2e.scenarios import PRECISIONS
from tests.models.sequence_runner import SequenceRunner

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="session", params=["reference", "native"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return ReferenceBackend() if request.param == "reference" else NativeBackend(num_threads=2, dtype="float32")


@pytest.fixture(scope="session", params=["reference", *PRECISIONS])
def any_backend(request: pytest.FixtureRequest) -> Backend:
    """As `backend`, and with weights of every kind."""
    if request.param == "reference":
        return ReferenceBackend()
    return NativeBackend(num_threads=2, **PRECISIONS[request.param])


@pytest.fixture
def open_tiny_anyhow(any_backend: Backend) -> Callable[[str], SequenceRunner]:
    """As `open_tiny`, and with weights of every kind."""
    return lambda name: open_runner(GOLDEN / name, any_backend)


@pytest.fixture
def open_tiny(backend: Backend) -> Callable[[str], SequenceRunner]:
    """Opens a golden checkpoint, by its path under `GOLDEN`, on each backend."""
    return lambda name: open_runner(GOLDEN / name, backend)


@pytest.fixture(scope="session")
def demo_runner(demo_model_path: Path) -> SequenceRunner:
    """The demo model on the native backend."""
    return open_runner(demo_model_path, NativeBackend(num_threads=2, dtype="float32"))


def open_runner(path: Path, backend: Backend) -> SequenceRunner:
    checkpoint = open_checkpoint(path)
    return SequenceRunner(checkpoint.config, checkpoint.tensors, backend)
