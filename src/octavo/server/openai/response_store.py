"""ResponseStore: what has been answered, for as long as there is room, so that a client may go on from it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import msgspec

from octavo.server.errors import ApiError
from octavo.server.openai.responses_protocol import Response

MAX_STORED_BYTES = 64 << 20  # as JSON; beyond it, what has not been asked for longest is forgotten


@dataclass(slots=True)
class StoredResponse:
    """A response and the conversation up to its end, in the chat form. `task` makes one in the background."""

    response: Response
    messages: list[dict[str, Any]]
    task: asyncio.Task[None] | None = None
    num_bytes: int = 0


class ResponseStore:
    """Responses by the caller they belong to and their id."""

    def __init__(self, max_bytes: int = MAX_STORED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._stored: OrderedDict[tuple[str, str], StoredResponse] = OrderedDict()

    def put(self, caller: str, stored: StoredResponse) -> None:
        """Keep a response, in place of what was there under its id."""
        self.drop(caller, stored.response.id)
        stored.num_bytes = len(msgspec.json.encode((stored.response, stored.messages)))
        self._stored[caller, stored.response.id] = stored
        self._num_bytes += stored.num_bytes
        for key in list(self._stored):
            if self._num_bytes <= self._max_bytes:
                break
            task = self._stored[key].task
            if task is None or task.done():  # what is under way will still be asked for
                self.drop(*key)

    def get(self, caller: str, response_id: str, param: str | None = None) -> StoredResponse:
        """The response. Raises the error 404, blaming the field `param`, if it is not there or another caller's."""
        if (caller, response_id) not in self._stored:
            message = f"the response {response_id!r} does not exist: it was not stored, or had to make room for others"
            raise ApiError(404, "response_not_found", message, param)
        self._stored.move_to_end((caller, response_id))
        return self._stored[caller, response_id]

    def drop(self, caller: str, response_id: str) -> None:
        """Forget a response, if it is there."""
        stored = self._stored.pop((caller, response_id), None)
        self._num_bytes -= stored.num_bytes if stored else 0
