"""How an engine process is, as its front sees it."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import dataclass
from enum import Enum


class EngineState(Enum):
    """Where an engine stands in its life; it goes down this list, and back only by a restart."""

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


class EngineLife:
    """Where one engine process stands, from its start to its end, and who waits for either."""

    def __init__(self) -> None:
        self.phase = "starting the engine process"
        self.failure = ""  # why it is dead, or why it is about to die
        self._state = EngineState.LOADING
        self._started_s = time.monotonic()
        self._start_took_s: float | None = None
        self._start_ended = asyncio.Event()  # ready or dead
        self._died = asyncio.Event()

    @property
    def status(self) -> EngineStatus:
        """How the engine is."""
        elapsed_s = self._start_took_s or time.monotonic() - self._started_s
        return EngineStatus(self._state, self.phase, elapsed_s, self.failure)

    @property
    def has_started(self) -> bool:
        """Whether the start has ended well."""
        return self._start_took_s is not None

    def check_ready(self) -> None:
        """Raise EngineUnavailableError, which says why, unless requests are welcome."""
        if self._state is not EngineState.READY:
            raise EngineUnavailableError(self.status)

    def become_ready(self) -> None:
        """The start has ended well; whoever asked for the end meanwhile gets it."""
        self._start_took_s = time.monotonic() - self._started_s
        if self._state is EngineState.LOADING:
            self._state = EngineState.READY
        self._start_ended.set()

    def drain(self) -> None:
        """Nothing new is welcome."""
        if self._state is not EngineState.DEAD:
            self._state = EngineState.DRAINING

    def die(self, failure: str) -> bool:
        """Whether it lived until now."""
        if self._state is EngineState.DEAD:
            return False
        self._state, self.failure = EngineState.DEAD, failure
        self._start_ended.set()
        self._died.set()
        return True

    async def wait_until_ready(self) -> None:
        """Wait for the end of the start. Raises EngineUnavailableError, with the cause, if it failed."""
        await self._start_ended.wait()
        self.check_ready()

    async def wait_until_dead(self) -> None:
        """Wait for the end."""
        await self._died.wait()


class EngineUnavailableError(RuntimeError):
    """The engine takes no requests, or has lost those it had; `state` says which."""

    def __init__(self, status: EngineStatus) -> None:
        super().__init__(_reason(status))
        self.state = status.state


def describe_exit(status: int) -> str:
    """What the exit status of an engine process that did not say why it left means, and what to do."""
    if status >= 0:
        return f"its process ended with status {status}; its last lines in the log say why"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    remedy = {
        "SIGKILL": "if the machine ran out of memory, lower --gpu-memory-utilization or --max-model-len",
        "SIGILL": "this CPU lacks an instruction of the build; `octavo doctor` shows what is in use",
        "SIGTERM": "somebody ended it by hand; end the server instead",
    }.get(name, "please report it, with the log")
    return f"its process was ended by {name}; {remedy}"


def _reason(status: EngineStatus) -> str:
    match status.state:
        case EngineState.LOADING:
            return f"the engine is loading ({status.phase}, {status.elapsed_s:.1f} s so far); try again soon"
        case EngineState.DRAINING:
            return "the engine is shutting down and takes no new requests"
        case _:
            return f"the engine is dead: {status.message}"
