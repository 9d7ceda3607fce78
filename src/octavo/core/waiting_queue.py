"""WaitingQueue: requests that have no row, in the order in which they will get one."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from octavo.core.request import QueueKey, Request


class WaitingQueue:
    """A priority queue with O(log n) entry and exit. A removed entry turns stale and is dropped in passing."""

    def __init__(self) -> None:
        self._heap: list[tuple[QueueKey, Request]] = []
        self._waiting: dict[QueueKey, Request] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: Request) -> None:
        """Enter a request at the place its key gives it."""
        assert request.queue_key not in self._waiting, f"request {request.request_id} waits already"
        self._waiting[request.queue_key] = request
        heappush(self._heap, (request.queue_key, request))

    def peek(self) -> Request:
        """The request that is next. Raises IndexError when nobody waits."""
        while self._heap[0][0] not in self._waiting:
            heappop(self._heap)
        return self._heap[0][1]

    def charge(self, request: Request, *, num_prompt_tokens: int = 0, num_output_tokens: int = 0) -> None:
        """Learn what a request was served. Here the order of the keys is all that counts."""

    def remove(self, request: Request) -> None:
        """Take a request out, wherever it stands."""
        del self._waiting[request.queue_key]
        if len(self._heap) > 2 * len(self._waiting) + 16:  # mostly stale: rebuild, at O(1) for each removal before
            self._heap = list(self._waiting.items())
            heapify(self._heap)
