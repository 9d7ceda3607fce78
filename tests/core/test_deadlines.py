from __future__ import annotations

from dataclasses import replace

import pytest

from octavo.core.deadlines import Deadlines
from octavo.core.messages import ModelRunnerOutput, RequestOutput, SampledRow
from octavo.core.scheduler import Scheduler
from octavo.sim.engine_settings import EngineSettings
from tests.core.engine_requests import make_request, make_tokens


def ends(outputs: list[RequestOutput]) -> list[tuple[str, int, str | None]]:
    return [(output.request_id, output.index, output.finish_reason) for output in outputs]


@pytest.fixture
def scheduler() -> Scheduler:
    return EngineSettings(num_blocks=8, max_num_seqs=1, max_num_batched_tokens=16).build_scheduler()


def step(scheduler: Scheduler) -> list[RequestOutput]:
    scheduled = scheduler.schedule()
    sampled = tuple(SampledRow(entry.row, (7,)) for entry in scheduled.scheduled if entry.is_sampled)
    return scheduler.update(scheduled, ModelRunnerOutput(scheduled.step_id, sampled))


def test_each_deadline_is_met_once_in_the_order_of_time():
    deadlines = Deadlines()
    for name, deadline_s in (("c", 3.0), ("a", 1.0), ("b", 2.0), ("never", None)):
        deadlines.add(replace(make_request(name, [1]), deadline_s=deadline_s))
    assert list(deadlines.take_due(0.5)) == []
    assert list(deadlines.take_due(2.0)) == ["a", "b"]
    assert list(deadlines.take_due(9.0)) == ["c"]
    assert list(deadlines.take_due(9.0)) == []


def test_who_has_ended_is_forgotten(scheduler):
    for number in range(500):
        scheduler.add(replace(make_request(str(number), [1]), queue_deadline_s=5.0, deadline_s=9.0))
        scheduler.abort(str(number))
    assert scheduler.num_deadlines == 0
    assert len(scheduler._deadlines._heap) <= 64
    scheduler.add(replace(make_request("a", [1], n=2, max_tokens=50), deadline_s=9.0))
    scheduler.abort("a", 0)
    assert ends(scheduler.expire(9.0)) == [("a", 1, "timeout")]


def test_a_request_that_runs_ends_at_its_deadline_and_leaves_nothing(scheduler):
    scheduler.add(replace(make_request("a", make_tokens(20), max_tokens=50), deadline_s=5.0))
    for _ in range(3):
        step(scheduler)
    assert scheduler.expire(4.9) == []
    assert ends(scheduler.expire(5.0)) == [("a", 0, "timeout")]
    assert not scheduler.has_unfinished and scheduler.kv.pool.num_free == 8


def test_the_queues_deadline_is_for_those_who_have_not_got_a_row(scheduler):
    for name in "ab":
        scheduler.add(replace(make_request(name, [1, 2], max_tokens=50), queue_deadline_s=5.0))
    step(scheduler)
    assert ends(scheduler.expire(5.0)) == [("b", 0, "timeout")]
    assert scheduler.expire(1e9) == []  # who has begun may finish
    assert scheduler.has_unfinished


def test_choices_that_wait_for_a_row_have_begun_with_the_first_of_them(scheduler):
    scheduler.add(replace(make_request("a", [1, 2], n=3, max_tokens=50), queue_deadline_s=5.0, deadline_s=9.0))
    step(scheduler)
    assert scheduler.expire(5.0) == []
    assert ends(scheduler.expire(9.0)) == [("a", 0, "timeout"), ("a", 1, "timeout"), ("a", 2, "timeout")]
    assert not scheduler.has_unfinished


def test_a_request_that_has_ended_is_not_ended_again(scheduler):
    scheduler.add(replace(make_request("a", [1, 2], max_tokens=1), queue_deadline_s=5.0, deadline_s=9.0))
    step(scheduler)
    assert not scheduler.has_unfinished
    assert scheduler.expire(10.0) == []
