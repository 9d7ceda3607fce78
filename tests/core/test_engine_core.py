from __future__ import annotations

import pytest

from octavo.core.admission import RequestRejected
from octavo.core.engine_core import EngineCore
from octavo.core.executor import FinishedStep
from octavo.core.messages import ModelRunnerOutput, SampledRow, SchedulerOutput
from octavo.sim.engine_settings import EngineSettings
from octavo.sim.simulator import PlainModel
from tests.core.engine_requests import make_request


class RecordingModel(PlainModel):
    """A plain model that remembers its steps, and fails the rows it is told to."""

    def __init__(self) -> None:
        self.steps: list[SchedulerOutput] = []
        self.failing_rows: set[int] = set()
        self.is_closed = False

    def execute(self, scheduled: SchedulerOutput) -> FinishedStep:
        self.steps.append(scheduled)
        sampled = [
            SampledRow(row.row, (), error="no choice") if row.row in self.failing_rows else row
            for row in super().execute(scheduled).result().sampled
        ]
        return FinishedStep(ModelRunnerOutput(scheduled.step_id, tuple(sampled)))

    def close(self) -> None:
        self.is_closed = True


def make_engine(**settings) -> tuple[EngineCore, RecordingModel]:
    model = RecordingModel()
    times = iter(range(1000))
    scheduler = EngineSettings(**{"num_blocks": 16, **settings}).build_scheduler()
    return EngineCore(scheduler, model, clock=lambda: float(next(times))), model


def test_a_step_without_work_is_not_executed():
    engine, model = make_engine()
    result = engine.step()
    assert (result.outputs, result.stats.num_tokens, model.steps) == ((), 0, [])


def test_steps_are_numbered_and_timed():
    engine, model = make_engine()
    engine.add_request(make_request("r", [1, 2, 3], max_tokens=2))
    stats = [engine.step().stats for _ in range(2)]
    assert [(s.step_id, s.num_tokens, s.step_s, s.num_running, s.num_waiting) for s in stats] == [
        (1, 3, 1.0, 1, 0),
        (2, 1, 1.0, 0, 0),
    ]
    assert [(s.num_blocks, s.num_free_blocks) for s in stats] == [(16, 15), (16, 16)]
    assert [step.step_id for step in model.steps] == [1, 2]


def test_stats_count_preemptions_and_prefix_hits():
    engine, _ = make_engine(num_blocks=4, block_size=4)
    for name in ("a", "b"):
        engine.add_request(make_request(name, range(5), max_tokens=9))
    while engine.has_unfinished:
        stats = engine.step().stats
    # b shares a's first block of 4 tokens, gives way once a needs the fourth block, and comes back when a has ended:
    # then it finds one token more, with which a's second block and its own begin alike.
    assert (stats.num_preemptions_total, stats.num_waiting) == (1, 0)
    assert stats.num_prefix_queries_total == 5 + 5 + 9
    assert stats.num_prefix_hits_total == 4 + 5


def test_the_last_outputs_of_an_abort_come_with_the_next_step():
    engine, model = make_engine()
    engine.add_request(make_request("r", [1, 2, 3], n=2, max_tokens=9))
    engine.step()
    engine.step()
    engine.abort_request("r", 1)
    engine.abort_request("r", 1)
    engine.abort_request("nobody")
    assert [(o.index, o.finish_reason) for o in engine.step().outputs] == [(1, "abort"), (0, None)]
    engine.abort_request("r")
    assert engine.has_unfinished
    num_steps = len(model.steps)
    assert [(o.index, o.finish_reason) for o in engine.step().outputs] == [(0, "abort")]
    assert not engine.has_unfinished
    assert len(model.steps) == num_steps


def test_a_row_that_fails_ends_its_request_alone():
    engine, model = make_engine()
    engine.add_request(make_request("good", [1, 2, 3], max_tokens=4))
    engine.add_request(make_request("bad", [4, 5, 6], max_tokens=4))
    engine.step()
    model.failing_rows = {1}
    outputs = {output.request_id: output for output in engine.step().outputs}
    assert (outputs["bad"].finish_reason, outputs["bad"].error, outputs["bad"].new_token_ids) == (
        "error",
        "no choice",
        (),
    )
    assert (outputs["good"].finish_reason, outputs["good"].error) == (None, None)
    engine.step()
    assert model.steps[-1].freed_rows == (1,)
    assert [output.finish_reason for output in engine.step().outputs] == ["length"]


def test_a_failing_leader_lets_its_siblings_go_on():
    engine, model = make_engine()
    model.failing_rows = {0}
    engine.add_request(make_request("r", [1, 2, 3], n=3, max_tokens=1))
    assert [(o.index, o.finish_reason) for o in engine.step().outputs] == [(0, "error")]
    model.failing_rows = set()
    assert [(o.index, o.finish_reason) for o in engine.step().outputs] == [(1, "length"), (2, "length")]


def test_a_refused_request_leaves_no_trace():
    engine, _ = make_engine()
    with pytest.raises(RequestRejected):
        engine.add_request(make_request("r", [], max_tokens=4))
    assert not engine.has_unfinished
    engine.add_request(make_request("r", [1], max_tokens=4))


def test_closing_closes_the_executor():
    engine, model = make_engine()
    engine.close()
    assert model.is_closed
