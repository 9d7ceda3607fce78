"""Every backend that runs here: the reference, and the native one in each instruction set that this CPU has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from octavo.backends.native import isa, operations, plan
from octavo.backends.native.backend import NativeBackend
from octavo.backends.ops import Backend
from octavo.backends.reference.backend import ReferenceBackend

NATIVE_NAMES = [f"native-{name}" for name in isa.runnable_isas()]
BACKEND_NAMES = ["reference", *NATIVE_NAMES]


def make_backend(name: str, num_threads: int = 2, *, is_recorded: bool = False, **options: Any) -> Backend:
    """The backend of this name. What follows the name means nothing to the reference."""
    if name == "reference":
        return ReferenceBackend()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OCTAVO_ISA", name.removeprefix("native-"))
        isa.load_extension.cache_clear()
        try:
            return NativeBackend(num_threads, is_recorded=is_recorded, **options)
        finally:
            isa.load_extension.cache_clear()


@pytest.fixture(scope="module", params=BACKEND_NAMES)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each backend in turn, with two threads."""
    return make_backend(request.param)


@pytest.fixture(scope="module", params=NATIVE_NAMES)
def native_name(request: pytest.FixtureRequest) -> str:
    """Each native build in turn."""
    return str(request.param)


@pytest.fixture(scope="session", autouse=True)
def _poisoned_results() -> Iterator[None]:
    """Kernels find NaN where their results go, so that what they forget to write is seen."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (operations, plan):
            patch.setattr(module, "empty", lambda *shape: np.full(shape, np.nan, np.float32))
        yield
