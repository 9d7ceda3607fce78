"""TurnWriter: what the writers of responses and of messages have in common."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from typing import Any

from octavo.server.errors import ApiError, as_api_error
from octavo.server.turns.events import TurnEnd, TurnEvent
from octavo.server.turns.turn import Turn

logger = logging.getLogger("octavo.server")


class TurnWriter(ABC):
    """Writes a turn of one choice, event by event, in the form of another API, whose events it yields on the way."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    async def write(self) -> None:
        """Write it to its end. Leaves nothing running; raises ApiError if the turn failed."""
        try:
            async with aclosing(self._events()) as events:
                async for _ in events:
                    pass
        finally:
            self._turn.close()

    async def events(self) -> AsyncGenerator[Any, None]:
        """Every event, from the beginning to the end; the last one of a turn that failed says so."""
        try:
            async with aclosing(self._events()) as events:
                async for event in events:
                    yield event
        except Exception as error:
            logger.error("a stream broke off: %s: %s", type(error).__name__, error)
            yield self.fail(as_api_error(error))

    async def _events(self) -> AsyncGenerator[Any, None]:
        for event in self._begin():
            yield event
        async with aclosing(self._turn.events()) as happenings:
            async for happening in happenings:
                # These APIs have no such end.
                if isinstance(happening, TurnEnd) and happening.finish_reason == "timeout":
                    raise ApiError(504, "timeout", "the request's time was over before its answer was complete")
                for event in self._take(happening):
                    yield event
        for event in self._end():
            yield event

    @abstractmethod
    def fail(self, error: ApiError) -> Any:
        """Take note that the turn broke off; returns the event that says so."""

    @abstractmethod
    def _begin(self) -> Iterable[Any]:
        """The events before anything has happened."""

    @abstractmethod
    def _take(self, happening: TurnEvent) -> Iterator[Any]:
        """The events that tell of what happened."""

    @abstractmethod
    def _end(self) -> Iterable[Any]:
        """The events after all has happened."""
