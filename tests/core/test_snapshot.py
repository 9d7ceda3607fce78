"""What somebody who looks at the engine is shown."""

from __future__ import annotations

from octavo.core.engine_core import EngineCore
from octavo.core.snapshot import CACHED, FREE, HELD, SHARED, take_snapshot
from octavo.sim.engine_settings import EngineSettings
from octavo.sim.simulator import PlainModel
from tests.core.engine_requests import make_request


def make_engine(**settings) -> EngineCore:
    scheduler = EngineSettings(**{"num_blocks": 8, "block_size": 4, **settings}).build_scheduler()
    return EngineCore(scheduler, PlainModel(), clock=lambda: 0.0)


def test_blocks_are_free_held_shared_or_cached():
    engine = make_engine()
    assert take_snapshot(engine.scheduler).blocks == FREE * 8
    engine.add_request(make_request("first", list(range(9)), max_tokens=20))
    engine.step()
    engine.add_request(make_request("second", [*range(8), 50], max_tokens=1))
    engine.add_request(make_request("third", [*range(8), 60], max_tokens=20))
    engine.step()
    seen = take_snapshot(engine.scheduler)
    first, third = seen.running
    assert (first.request_id, third.request_id, seen.waiting) == ("first", "third", ())
    assert first.block_ids[:2] == third.block_ids[:2]
    marks = [[seen.blocks[block_id] for block_id in request.block_ids] for request in seen.running]
    assert marks == [[SHARED, SHARED, HELD], [SHARED, SHARED, HELD]]
    assert seen.blocks.count(FREE) == 4
    for request_id in ("first", "third"):
        engine.abort_request(request_id)
    assert take_snapshot(engine.scheduler).blocks.count(CACHED) == 2


def test_requests_are_shown_where_they_stand():
    engine = make_engine(max_num_seqs=1, max_num_batched_tokens=4)
    engine.add_request(make_request("long", list(range(10)), max_tokens=5))
    engine.add_request(make_request("next", [1, 2], max_tokens=3))
    stats = [engine.step().stats for _ in range(4)]
    seen = take_snapshot(engine.scheduler)
    [running], [waiting] = seen.running, seen.waiting
    assert (running.num_prompt_tokens, running.num_computed_tokens, running.num_tokens) == (10, 11, 12)
    assert (running.max_total_tokens, len(running.block_ids), seen.block_size) == (15, 3, 4)
    assert (waiting.request_id, waiting.status, waiting.block_ids) == ("next", "waiting", ())
    assert [(step.num_tokens, step.num_prompt_tokens) for step in stats] == [(4, 4), (4, 4), (2, 2), (1, 0)]
