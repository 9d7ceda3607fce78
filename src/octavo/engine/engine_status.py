"""How an engine process is, as its front sees it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class EngineState(Enum):
    """Where an engine stands in its life; it goes down this list and never back."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"  # what runs may finish, nothing new begins
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """A state and what there is to say about it."""

    state: EngineState
    phase: str = ""  # what the start is, or was at last, busy with
    elapsed_s: float = 0.0  # since the start; once it is ready, what the start took
    message: str = ""  # why it is dead


class EngineUnavailableError(RuntimeError):
    """The engine takes no requests, or has lost those it had; `state` says which."""

    def __init__(self, status: EngineStatus) -> None:
        super().__init__(_reason(status))
        self.state = status.state


def _reason(status: EngineStatus) -> str:
    match status.state:
        case EngineState.LOADING:
            return f"the engine is loading ({status.phase}, {status.elapsed_s:.1f} s so far); try again soon"
        case EngineState.DRAINING:
            return "the engine is shutting down and takes no new requests"
        case _:
            return f"the engine is dead: {status.message}"
