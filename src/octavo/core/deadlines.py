"""Deadlines: which requests have had their time."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from octavo.core.messages import EngineRequest


class Deadlines:
    """Every deadline of every request, earliest first. Those of requests that have ended are met by nobody."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str, bool]] = []  # the flag: whether it is only for leaving the queue
        self._queued_ids: set[str] = set()  # of requests that have to leave the queue in time
        self._num_added = 0  # tells equal times apart

    def add(self, request: EngineRequest) -> None:
        """Watch the deadlines of a request, if it has any."""
        if request.deadline_s is not None:
            self._push(request.deadline_s, request.request_id, is_of_queue=False)
        if request.queue_deadline_s is not None:
            self._push(request.queue_deadline_s, request.request_id, is_of_queue=True)
            self._queued_ids.add(request.request_id)

    def leave_queue(self, request_id: str) -> None:
        """A choice of the request has got a row."""
        self._queued_ids.discard(request_id)

    def take_due(self, now_s: float) -> Iterator[str]:
        """The id of each request whose time is over."""
        while self._heap and self._heap[0][0] <= now_s:
            _, _, request_id, is_of_queue = heappop(self._heap)
            if not is_of_queue or request_id in self._queued_ids:
                self._queued_ids.discard(request_id)
                yield request_id

    def _push(self, deadline_s: float, request_id: str, *, is_of_queue: bool) -> None:
        self._num_added += 1
        heappush(self._heap, (deadline_s, self._num_added, request_id, is_of_queue))
