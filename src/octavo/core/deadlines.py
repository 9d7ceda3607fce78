"""Deadlines: which requests have had their time."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from octavo.core.messages import EngineRequest

MAX_IDLE_HEAP = 64  # deadlines of requests that have ended are swept out when there are many


class Deadlines:
    """Every deadline of every request that has not ended, earliest first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str, bool]] = []  # the flag: whether it is only for leaving the queue
        self._is_queued_by_id: dict[str, bool] = {}  # of requests with a deadline: whether they must leave the queue
        self._num_added = 0  # tells equal times apart

    def __len__(self) -> int:
        """Requests that are watched."""
        return len(self._is_queued_by_id)

    def add(self, request: EngineRequest) -> None:
        """Watch the deadlines of a request, if it has any."""
        for deadline_s, is_of_queue in ((request.deadline_s, False), (request.queue_deadline_s, True)):
            if deadline_s is not None:
                self._num_added += 1
                heappush(self._heap, (deadline_s, self._num_added, request.request_id, is_of_queue))
                self._is_queued_by_id[request.request_id] = is_of_queue

    def leave_queue(self, request_id: str) -> None:
        """A choice of the request has got a row."""
        if request_id in self._is_queued_by_id:
            self._is_queued_by_id[request_id] = False

    def forget(self, request_id: str) -> None:
        """The request has ended; one without a deadline is ignored."""
        self._is_queued_by_id.pop(request_id, None)
        if len(self._heap) > 4 * len(self._is_queued_by_id) + MAX_IDLE_HEAP:  # a request has two at most
            self._heap = [entry for entry in self._heap if entry[2] in self._is_queued_by_id]
            heapify(self._heap)

    def take_due(self, now_s: float) -> Iterator[str]:
        """The id of each request whose time is over."""
        while self._heap and self._heap[0][0] <= now_s:
            _, _, request_id, is_of_queue = heappop(self._heap)
            is_queued = self._is_queued_by_id.get(request_id)  # None: it has ended
            if is_queued is not None and (is_queued or not is_of_queue):
                del self._is_queued_by_id[request_id]
                yield request_id
