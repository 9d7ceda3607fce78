"""octavo serves large language models; the same request gives the same bytes, whoever else is being served.

The public names are imported at first use, so that `import octavo` costs nothing (PEP 562).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.config import EngineConfig
    from octavo.core.sampling_params import SamplingParams, StructuredOutputsParams
    from octavo.engine.beam_search import BeamSearchParams
    from octavo.llm import LLM

    __version__: str

__all__ = ["LLM", "BeamSearchParams", "EngineConfig", "SamplingParams", "StructuredOutputsParams", "__version__"]

_MODULE_BY_NAME = {
    "BeamSearchParams": "octavo.engine.beam_search",
    "EngineConfig": "octavo.config",
    "LLM": "octavo.llm",
    "SamplingParams": "octavo.core.sampling_params",
    "StructuredOutputsParams": "octavo.core.sampling_params",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("octavo")
    if name in _MODULE_BY_NAME:
        return getattr(import_module(_MODULE_BY_NAME[name]), name)
    raise AttributeError(f"module 'octavo' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
