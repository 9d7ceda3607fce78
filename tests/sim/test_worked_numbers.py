"""Numbers that can be worked out on paper, got from the real scheduler."""

from __future__ import annotations

import pytest

from octavo.core.engine_core import StepResult
from octavo.core.messages import SchedulerOutput
from octavo.sim.batching import BatchingPolicy, ContinuousBatching, StaticBatching
from octavo.sim.checked_engine import CheckedEngine
from octavo.sim.engine_settings import EngineSettings
from octavo.sim.simulator import PlainModel, Simulator
from tests.core.engine_requests import make_request, make_tokens

FOUR_SLOTS = EngineSettings(num_blocks=64, max_num_seqs=4)


def utilization(batching: BatchingPolicy, *output_lens: int) -> float:
    simulator = Simulator(FOUR_SLOTS, PlainModel(), batching=batching)
    report = simulator.run(
        make_request(f"r{i}", make_tokens(4, i), max_tokens=length) for i, length in enumerate(output_lens)
    )
    assert [len(report.token_ids[f"r{i}", 0]) for i in range(len(output_lens))] == list(output_lens)
    return report.utilization


def test_a_static_batch_waits_for_its_longest_request():
    assert utilization(StaticBatching(4), 10, 40, 20, 80) == 150 / (4 * 80)
    assert round(100 * utilization(StaticBatching(4), 10, 40, 20, 80)) == 47


def test_continuous_batching_gives_a_free_slot_away_at_once():
    lens = (10, 40, 20, 80, 70, 60)
    assert utilization(StaticBatching(4), *lens) == 280 / (4 * (80 + 70))
    assert utilization(ContinuousBatching(), *lens) == 280 / (4 * 80)


def test_slots_stay_full_while_anybody_waits():
    steps: list[tuple[int, int]] = []

    def listen(scheduled: SchedulerOutput, result: StepResult) -> None:
        steps.append((len(scheduled.scheduled), result.stats.num_waiting))

    engine = CheckedEngine(FOUR_SLOTS, listener=listen)
    for i, length in enumerate((10, 40, 20, 80, 70, 60)):
        engine.add(make_request(f"r{i}", make_tokens(4, i), max_tokens=length))
    engine.drain()
    num_waiting = [waiting for _, waiting in steps]
    assert num_waiting[:21] == [2] * 10 + [1] * 10 + [0]
    assert {rows for rows, _ in steps[:40]} == {4}  # the last to wait goes in as the third to end leaves


@pytest.mark.parametrize("num_prompt_tokens", [300, 260])
def test_300_tokens_take_19_blocks_and_waste_4_slots(num_prompt_tokens):
    engine = CheckedEngine(EngineSettings(num_blocks=32, max_num_batched_tokens=512))
    engine.add(make_request("r", make_tokens(num_prompt_tokens), max_tokens=100))
    for _ in range(300 - num_prompt_tokens + 1):
        engine.step()
    (request,) = engine.scheduler.running
    assert request.num_computed_tokens == 300
    assert len(request.block_table.blocks) == 19
    assert 19 * 16 - 300 == 4
    assert engine.scheduler.kv.pool.num_free == 32 - 19


@pytest.mark.parametrize("is_first_alone", [True, False])
def test_8_requests_share_the_10_blocks_of_a_common_prefix(is_first_alone):
    engine = CheckedEngine(EngineSettings(num_blocks=128, max_num_batched_tokens=8 * 180))
    prefix = make_tokens(160)
    for i in range(8):
        engine.add(make_request(f"r{i}", prefix + make_tokens(20, i + 1), max_tokens=40))
        if is_first_alone and i == 0:
            engine.step()
    engine.step()
    pool = engine.scheduler.kv.pool
    assert [len(request.block_table.blocks) for request in engine.scheduler.running] == [12] * 8
    assert pool.num_blocks - pool.num_free == 10 + 8 * 2
    assert engine.coverage["duplicate block re-pointed"] == 0  # the tables are told with the next step
    engine.step()
    assert engine.coverage["duplicate block re-pointed"] == (0 if is_first_alone else 7)
    engine.drain()


def test_kv_waste_never_exceeds_15_tokens_a_sequence():
    engine = CheckedEngine(EngineSettings(num_blocks=40, max_num_batched_tokens=50))
    for i in range(12):
        engine.add(make_request(f"r{i}", make_tokens(7 * i + 1, i), max_tokens=5 * i + 9))
    wastes = set()
    while engine.scheduler.has_unfinished:
        engine.step()
        for request in engine.scheduler.running:
            wastes.add(16 * len(request.block_table.blocks) - request.num_computed_tokens)
    assert wastes == set(range(16))
