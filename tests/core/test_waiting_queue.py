from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from octavo.core.request import Request
from octavo.core.waiting_queue import WaitingQueue
from tests.core.engine_requests import make_request
from tests.core.hypothesis_settings import SHORT


def make(priority: int, arrival: int) -> Request:
    return Request(make_request(f"r{arrival}", [1]), 0, (priority, arrival, 0), 10)


class WaitingQueueMachine(RuleBasedStateMachine):
    """The heap with stale entries against a sorted list."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = WaitingQueue()
        self.waiting: list[Request] = []
        self.gone: list[Request] = []
        self.num_arrivals = 0

    @rule(priority=st.integers(-2, 2))
    def arrive(self, priority):
        self.num_arrivals += 1
        self._add(make(priority, self.num_arrivals))

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def come_back(self, data):
        self._add(self.gone.pop(data.draw(st.integers(0, len(self.gone) - 1))))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data):
        self._remove(self.waiting[data.draw(st.integers(0, len(self.waiting) - 1))])

    @precondition(lambda self: self.waiting)
    @rule()
    def leave_first(self):
        self._remove(self.queue.peek())

    @precondition(lambda self: not self.waiting)
    @rule()
    def peek_at_nobody(self):
        with pytest.raises(IndexError):
            self.queue.peek()

    def _add(self, request: Request) -> None:
        self.queue.add(request)
        self.waiting.append(request)
        self.waiting.sort(key=lambda request: request.queue_key)

    def _remove(self, request: Request) -> None:
        self.queue.remove(request)
        self.waiting.remove(request)
        self.gone.append(request)

    @invariant()
    def same(self):
        assert len(self.queue) == len(self.waiting)
        if self.waiting:
            assert self.queue.peek() is self.waiting[0]


TestWaitingQueue = WaitingQueueMachine.TestCase
TestWaitingQueue.settings = SHORT


def test_nobody_waits_twice():
    queue = WaitingQueue()
    request = make(0, 1)
    queue.add(request)
    with pytest.raises(AssertionError, match="r1 waits already"):
        queue.add(request)


def test_stale_entries_do_not_pile_up():
    queue = WaitingQueue()
    queue.add(make(-1, 0))  # always first, so that nothing behind it is dropped in passing
    for arrival in range(1, 2000):
        request = make(0, arrival)
        queue.add(request)
        queue.remove(request)
    assert len(queue) == 1
    assert len(queue._heap) <= 2 * len(queue) + 17
