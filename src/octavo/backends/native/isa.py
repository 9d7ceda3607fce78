"""Which build of the extension to run: the best one that this CPU supports."""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from octavo.backends.native import __name__ as _package

_FASTER_ISAS = ("neon_dotprod",) if platform.machine() in ("aarch64", "arm64") else ("amx", "avx512", "avx2")
ISAS = (*_FASTER_ISAS, "baseline")  # of this architecture, best first


@cache
def load_extension() -> ModuleType:
    """The extension built for the best instruction set of this CPU, or for the one that OCTAVO_ISA names.

    Raises ImportError if the extension was not built, and ValueError if OCTAVO_ISA names an
    instruction set that was not built or that this CPU cannot run.
    """
    runnable = runnable_isas()
    wanted = os.environ.get("OCTAVO_ISA") or runnable[0]
    if wanted not in runnable:
        raise ValueError(
            f"OCTAVO_ISA={wanted!r} cannot run here: this installation and this CPU have {', '.join(runnable)}; "
            f"set OCTAVO_ISA to one of them, or unset it for {runnable[0]}"
        )
    return _load(wanted)


def runnable_isas() -> list[str]:
    """The instruction sets that were built and that this CPU supports, best first; `baseline` is always the last.

    Raises ImportError if the extension was not built.
    """
    if not _is_built("baseline"):
        raise ImportError(
            f"the extension {_package}._baseline is missing: octavo was not built here; "
            "run `make setup` in a checkout, or `pip install` octavo again"
        )
    # Only the baseline build is sure to load on any CPU, so it is the one to ask.
    cpu_supports = _load("baseline").cpu_supports
    return [isa for isa in ISAS if _is_built(isa) and cpu_supports(isa)]


def _is_built(isa: str) -> bool:
    return find_spec(f"{_package}._{isa}") is not None


def _load(isa: str) -> ModuleType:
    return import_module(f"{_package}._{isa}")
