"""QueueLimit: how many requests may wait, so that whoever comes is either served in time or told to come back."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

MAX_RETRY_AFTER_S = 60
NUM_DEPARTURES = 64  # remembered, to tell how fast requests leave


class EngineOverloadedError(RuntimeError):
    """Too much is waiting. `retry_after_s` is when half of that will be done, at the present rate."""

    code = "server_overloaded"  # in the wire format and in the metrics, as RequestRejected has one

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(f"{message}; try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class QueueLimit:
    """Counts the choices under way, and the prompt tokens of those that have got no answer yet.

    `max_num_seqs` run; beyond these, `max_queued_requests` may wait, and prompts of `max_queued_tokens` together. One
    prompt may always wait alone, however long it is.
    """

    def __init__(self, *, max_num_seqs: int, max_queued_requests: int, max_queued_tokens: int) -> None:
        self._max_num_seqs = max_num_seqs
        self._max_queued_requests = max_queued_requests
        self._max_queued_tokens = max_queued_tokens
        self._num_choices_by_id: dict[str, int] = {}
        self._num_tokens_by_id: dict[str, int] = {}  # of the requests that wait for a first token
        self._num_choices = 0
        self._num_tokens = 0
        self._departures_s: deque[float] = deque(maxlen=NUM_DEPARTURES)

    @property
    def num_entries(self) -> int:
        """Choices under way, and prompts that wait."""
        return self._num_choices + len(self._num_tokens_by_id)

    def check(self, num_choices: int, num_prompt_tokens: int = 0) -> None:
        """Raise EngineOverloadedError if so many more may not come."""
        if self._num_choices + num_choices > self._max_num_seqs + self._max_queued_requests and self._num_choices:
            raise EngineOverloadedError(
                f"{self._num_choices} requests are under way; {self._max_num_seqs} may run and "
                f"{self._max_queued_requests} wait (--max-queued-requests)",
                self._retry_after_s(),
            )
        if self._num_tokens + num_prompt_tokens > self._max_queued_tokens and self._num_tokens:
            raise EngineOverloadedError(
                f"prompts of {self._num_tokens} tokens wait, and this one has {num_prompt_tokens}; "
                f"{self._max_queued_tokens} may wait together (--max-queued-tokens)",
                self._retry_after_s(),
            )

    @contextmanager
    def reserve(self, num_choices: int) -> Iterator[None]:
        """Count choices while their prompts are being tokenized."""
        self._num_choices += num_choices
        try:
            yield
        finally:
            self._num_choices -= num_choices

    def enter(self, request_id: str, num_choices: int, num_prompt_tokens: int) -> None:
        """A request is under way."""
        self._num_choices_by_id[request_id] = num_choices
        self._num_tokens_by_id[request_id] = num_prompt_tokens
        self._num_choices += num_choices
        self._num_tokens += num_prompt_tokens

    def begin(self, request_id: str) -> None:
        """A request has got its first token, so that its prompt waits no longer. Harmless when told again."""
        self._num_tokens -= self._num_tokens_by_id.pop(request_id, 0)

    def leave(self, request_id: str) -> None:
        """A request has ended, in whatever way."""
        self.begin(request_id)
        num_choices = self._num_choices_by_id.pop(request_id)
        self._num_choices -= num_choices
        self._departures_s.extend([time.monotonic()] * num_choices)

    def _retry_after_s(self) -> int:
        if len(self._departures_s) < 2:
            return 1
        rate = len(self._departures_s) / max(time.monotonic() - self._departures_s[0], 1e-3)
        num_waiting = max(1, self._num_choices - self._max_num_seqs)
        return min(MAX_RETRY_AFTER_S, max(1, math.ceil(num_waiting / 2 / rate)))
