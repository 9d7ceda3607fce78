from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from octavo.engine import queue_limit
from octavo.engine.queue_limit import MAX_RETRY_AFTER_S, EngineOverloadedError, QueueLimit
from tests.manual_clock import ManualClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock(50.0)
    monkeypatch.setattr(queue_limit, "time", clock)
    return clock


def make_limit(max_num_seqs: int = 2, max_queued_requests: int = 4, max_queued_tokens: int = 100) -> QueueLimit:
    return QueueLimit(
        max_num_seqs=max_num_seqs, max_queued_requests=max_queued_requests, max_queued_tokens=max_queued_tokens
    )


def test_so_many_may_run_and_so_many_wait():
    limit = make_limit()
    for name in "abcdef":
        limit.check(1, 5)
        limit.enter(name, 1, 5)
    with pytest.raises(EngineOverloadedError, match="6 requests are under way; 2 may run and 4 wait"):
        limit.check(1)
    limit.leave("c")
    limit.check(1)
    with pytest.raises(EngineOverloadedError):
        limit.check(2)  # choices count, not prompts


def test_prompts_wait_until_their_first_token():
    limit = make_limit(max_num_seqs=50)
    limit.enter("a", 1, 60)
    limit.check(1, 40)
    with pytest.raises(EngineOverloadedError, match="prompts of 60 tokens wait, and this one has 41; 100 may wait"):
        limit.check(1, 41)
    limit.begin("a")
    limit.begin("a")
    limit.check(1, 41)


def test_whoever_is_alone_is_let_in():
    make_limit(max_num_seqs=1, max_queued_requests=0).check(8, 1_000_000)


def test_when_to_come_back_follows_from_the_queue_and_the_rate(clock):
    limit = make_limit(max_num_seqs=10, max_queued_requests=40)
    for number in range(70):
        if number >= 50:
            clock.now_s += 0.5  # two leave in a second
            limit.leave(f"r{number - 50}")
        limit.enter(f"r{number}", 1, 1)
    with pytest.raises(EngineOverloadedError) as refused:
        limit.check(1)
    assert 9 <= refused.value.retry_after_s <= 11  # 40 wait, half of them are done in ten seconds
    clock.now_s += 10_000
    with pytest.raises(EngineOverloadedError) as refused:
        limit.check(1)
    assert refused.value.retry_after_s == MAX_RETRY_AFTER_S


def test_nobody_has_left_yet():
    limit = make_limit(max_num_seqs=1, max_queued_requests=0)
    limit.enter("a", 1, 1)
    with pytest.raises(EngineOverloadedError) as refused:
        limit.check(1)
    assert refused.value.retry_after_s == 1


class QueueLimitMachine(RuleBasedStateMachine):
    """Against a plain list of who is there; at the end nothing is left."""

    def __init__(self) -> None:
        super().__init__()
        self.limit = make_limit(max_num_seqs=3, max_queued_requests=5, max_queued_tokens=50)
        self.there: dict[str, tuple[int, int]] = {}
        self.waiting: set[str] = set()
        self.num_come = 0

    @rule(num_choices=st.integers(1, 4), num_tokens=st.integers(1, 40))
    def come(self, num_choices, num_tokens):
        num_before = sum(choices for choices, _ in self.there.values())
        tokens_before = sum(self.there[name][1] for name in self.waiting)
        fits = (num_before == 0 or num_before + num_choices <= 8) and (
            tokens_before == 0 or tokens_before + num_tokens <= 50
        )
        if not fits:
            with pytest.raises(EngineOverloadedError):
                self.limit.check(num_choices, num_tokens)
            return
        self.limit.check(num_choices, num_tokens)
        self.num_come += 1
        name = f"r{self.num_come}"
        self.limit.enter(name, num_choices, num_tokens)
        self.there[name] = (num_choices, num_tokens)
        self.waiting.add(name)

    @precondition(lambda self: self.there)
    @rule(data=st.data())
    def begin(self, data):
        name = data.draw(st.sampled_from(sorted(self.there)))
        self.limit.begin(name)
        self.waiting.discard(name)

    @precondition(lambda self: self.there)
    @rule(data=st.data())
    def leave(self, data):
        name = data.draw(st.sampled_from(sorted(self.there)))
        self.limit.leave(name)
        del self.there[name]
        self.waiting.discard(name)

    @invariant()
    def nothing_is_kept_of_who_has_left(self):
        assert self.limit._num_choices_by_id.keys() == self.there.keys()
        assert self.limit._num_tokens_by_id.keys() == self.waiting


TestQueueLimit = QueueLimitMachine.TestCase
