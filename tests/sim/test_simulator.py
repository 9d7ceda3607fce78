from __future__ import annotations

from dataclasses import replace

import pytest

from octavo.core.admission import RequestRejected
from octavo.core.messages import ScheduledRow, SchedulerOutput
from octavo.core.step_work import StepWork
from octavo.sim.batching import StaticBatching
from octavo.sim.cost_model import CostModel
from octavo.sim.engine_settings import EngineSettings
from octavo.sim.replay import ReplayReport
from octavo.sim.simulator import PlainModel, Simulator
from tests.core.engine_requests import make_request, make_tokens

ONE_SECOND_A_STEP = CostModel(fixed_s=1.0, token_s=0.0, pair_s=0.0)


def test_a_step_costs_what_it_has_to_do():
    rows = ScheduledRow(0, 10, 5, False, 0, ()), ScheduledRow(1, 0, 2, True, 0, ())
    scheduled = SchedulerOutput(1, 7, rows)
    assert StepWork.of(scheduled) == (7, 1, 11 + 12 + 13 + 14 + 15 + 1 + 2)
    cost_model = CostModel(fixed_s=1.0, token_s=0.1, sampled_s=0.002, pair_s=0.0001)
    assert cost_model.step_s(scheduled) == pytest.approx(1.0 + 0.7 + 0.002 + 0.0068)


def test_requests_enter_when_they_arrive_and_idle_time_is_skipped():
    simulator = Simulator(EngineSettings(num_blocks=16), PlainModel(), cost_model=ONE_SECOND_A_STEP)
    report = simulator.run(
        [
            make_request("late", [1, 2], max_tokens=2, arrival_s=100.0),
            make_request("early", [3, 4], max_tokens=3, arrival_s=5.0),
            make_request("between", [5, 6], max_tokens=3, arrival_s=6.5),
        ]
    )
    times = {name: (times.first_token_s, times.finished_s) for name, times in report.times_by_id.items()}
    assert times == {"early": (6.0, 8.0), "between": (8.0, 10.0), "late": (101.0, 102.0)}
    assert (report.num_steps, report.duration_s) == (7, 102.0)
    assert (report.num_slot_steps, report.num_slot_steps_used) == (7 * 8, 3 + 3 + 2)


def test_a_static_batch_is_closed_until_it_is_done():
    settings = EngineSettings(num_blocks=16, max_num_seqs=2)
    simulator = Simulator(settings, PlainModel(), cost_model=ONE_SECOND_A_STEP, batching=StaticBatching(2))
    lens = {"a": 1, "b": 3, "c": 1}
    report = simulator.run(make_request(name, [1], max_tokens=length) for name, length in lens.items())
    assert {name: times.finished_s for name, times in report.times_by_id.items()} == {"a": 1.0, "b": 3.0, "c": 4.0}


def test_all_choices_are_reported_and_the_last_one_ends_the_request():
    simulator = Simulator(EngineSettings(num_blocks=16), PlainModel(), cost_model=ONE_SECOND_A_STEP)
    report = simulator.run([make_request("r", make_tokens(20), n=3, max_tokens=4)])
    assert {key: len(token_ids) for key, token_ids in report.token_ids.items()} == {("r", i): 4 for i in range(3)}
    assert report.times_by_id["r"].first_token_s == 1.0
    assert report.times_by_id["r"].finished_s == 5.0  # the forks begin one step behind the leader


def test_nothing_to_serve_uses_nothing():
    assert Simulator(EngineSettings(num_blocks=16), PlainModel()).run([]).utilization == 0.0
    assert ReplayReport().utilization == 0.0


def test_a_closed_loop_sends_the_next_request_when_one_has_ended():
    simulator = Simulator(EngineSettings(num_blocks=16), PlainModel(), cost_model=ONE_SECOND_A_STEP, max_concurrency=2)
    lens = {"a": 1, "b": 3, "c": 2, "d": 1}
    report = simulator.run(make_request(name, [1], max_tokens=length) for name, length in lens.items())
    times = {name: (times.arrival_s, times.first_token_s) for name, times in report.times_by_id.items()}
    assert times == {"a": (0.0, 1.0), "b": (0.0, 1.0), "c": (1.0, 2.0), "d": (3.0, 4.0)}


def test_a_request_is_on_its_way_for_a_while():
    cost_model = replace(ONE_SECOND_A_STEP, request_s=0.25)
    requests = [make_request("a", [1], max_tokens=2), make_request("b", [2], max_tokens=1, arrival_s=0.9)]
    report = Simulator(EngineSettings(num_blocks=16), PlainModel(), cost_model=cost_model).run(requests)
    times = {name: (times.arrival_s, times.first_token_s) for name, times in report.times_by_id.items()}
    assert times == {"a": (0.0, 1.25), "b": (0.9, 2.25)}  # b has come before the second step

    settings = EngineSettings(num_blocks=16)
    closed = Simulator(settings, PlainModel(), cost_model=cost_model, max_concurrency=1).run(requests)
    times = {name: (times.arrival_s, times.first_token_s) for name, times in closed.times_by_id.items()}
    assert times == {"a": (0.0, 1.25), "b": (2.25, 3.5)}


def test_a_contiguous_cache_has_a_place_for_the_longest_sequence_for_everyone():
    settings = EngineSettings(num_blocks=16, max_model_len=65)  # four places of four blocks
    requests = [make_request(f"{i}", make_tokens(17, i), max_tokens=2) for i in range(8)]
    paged, contiguous = (
        Simulator(replace(settings, is_contiguous=is_contiguous), PlainModel(), cost_model=ONE_SECOND_A_STEP)
        for is_contiguous in (False, True)
    )
    paged_report, report = paged.run(requests), contiguous.run(requests)
    assert paged_report.token_ids.keys() == report.token_ids.keys()
    assert (paged_report.utilization, report.utilization) == (17 / (8 * 4), 17 / (8 * 5))
    assert report.kv_waste > 1 - 17 / 64 and paged_report.kv_waste < 1 - 16 / 32


def test_a_request_longer_than_its_place_is_refused():
    with pytest.raises(RequestRejected, match="maximum context length is 65"):
        Simulator(EngineSettings(num_blocks=16, max_model_len=65, is_contiguous=True), PlainModel()).run(
            [make_request("long", make_tokens(65), max_tokens=1)]
        )
