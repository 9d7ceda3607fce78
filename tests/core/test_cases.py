"""Faults that other engines have shipped, as scenarios; each number is a case of the reliability list.

Every engine here is a CheckedEngine: all answers are compared with solo runs, all books checked at every step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from types import FrameType
from typing import Any

import pytest

from octavo.core.admission import RequestRejected
from octavo.core.engine_core import EngineCore, StepResult
from octavo.core.messages import EngineRequest, RequestOutput, SchedulerOutput
from octavo.core.request import RequestStatus
from octavo.sim.checked_engine import CheckedEngine
from octavo.sim.engine_settings import EngineSettings
from octavo.sim.simulator import PlainModel
from octavo.sim.streams import Stream
from tests.core.engine_requests import make_request, make_tokens


def serve(engine: CheckedEngine, *requests: EngineRequest) -> None:
    for request in requests:
        engine.add(request)
    engine.drain()


def stream(engine: CheckedEngine, request_id: str, index: int = 0) -> Stream:
    return engine.streams.get(request_id, index)


def test_a01_colliding_hashes_cost_hits_and_never_an_answer():
    engine = CheckedEngine(EngineSettings(num_blocks=32, block_size=4, has_weak_hash=True), vocab_size=20)
    random = Random(1)
    prompts = [tuple(random.randrange(20) for _ in range(random.randint(33, 80))) for _ in range(50)]
    for i, prompt in enumerate(prompts):
        for turn in range(2):
            serve(engine, make_request(f"{i}/{turn}", prompt, max_tokens=8))
    assert engine.coverage["key collision"] > 0
    assert engine.coverage["prefix hit"] > 0


def test_a02_a_reused_block_is_not_found_under_its_old_key():
    engine = CheckedEngine(EngineSettings(num_blocks=6, block_size=4))
    first, second, common, tail = (make_tokens(4, seed) for seed in range(4))
    serve(engine, make_request("1", first + common + tail, max_tokens=4))
    old = {block.key for block in engine.scheduler.kv.pool.blocks if block.key}
    for i in range(4):
        serve(engine, make_request(f"filler {i}", make_tokens(20, 10 + i), max_tokens=2))
    serve(engine, make_request("2", second + common + tail, max_tokens=4))
    assert not old & {block.key for block in engine.scheduler.kv.pool.blocks}
    serve(engine, make_request("3", first + common + tail, max_tokens=4))
    assert engine.scheduler.totals.num_prefix_hits == 0
    assert engine.scheduler.kv.pool.num_evictions > 6


@pytest.mark.parametrize("length", [15, 16, 17, 31, 32, 33, 48])
def test_a03_a_prompt_that_is_cached_whole_computes_its_last_token(length):
    cached: list[int] = []

    def listen(scheduled: SchedulerOutput, result: StepResult) -> None:
        cached.extend(output.num_cached_tokens for output in result.outputs if output.request_id != "bystander")

    engine = CheckedEngine(EngineSettings(num_blocks=32), listener=listen)
    prompt = make_tokens(length)
    for turn in range(3):
        if turn == 2:
            engine.add(make_request("bystander", make_tokens(40, seed=1), max_tokens=20))
        serve(engine, make_request(f"{turn}", prompt, max_tokens=4))
    num_full = (length + 3) // 16 * 16  # of the 4 new tokens the last is not computed
    assert cached == [0] * 4 + [min(length - 1, num_full)] * 8


def test_a04_a_preempted_request_counts_its_tokens_after_it_has_asked_the_cache():
    engine = CheckedEngine(EngineSettings(num_blocks=12, max_num_batched_tokens=32))
    common = make_tokens(32)
    serve(engine, *(make_request(f"{i}", (*common, i), max_tokens=64) for i in range(8)))
    assert engine.coverage["preempted once"] > 0
    assert engine.coverage["prefix hit after a preemption"] > 0


def test_a05_duplicates_are_freed_after_the_table_has_turned_away_from_them():
    engine = CheckedEngine(EngineSettings(num_blocks=24, max_num_batched_tokens=128))
    prompt = make_tokens(40)
    twins = [make_request(name, prompt, seed=seed, max_tokens=60) for seed, name in enumerate(("left", "right"))]
    serve(engine, *twins, make_request("stranger", make_tokens(20, seed=1), max_tokens=100))
    assert engine.coverage["duplicate block re-pointed"] > 0
    assert stream(engine, "left").token_ids != stream(engine, "right").token_ids


@pytest.mark.parametrize("budget", [1, 7, 16, 39, 40])
@pytest.mark.parametrize("has_neighbour", [True, False])
def test_a06_a_chunk_of_a_prompt_delivers_nothing_and_the_last_delivers_once(budget, has_neighbour):
    outputs: list[RequestOutput] = []
    engine = CheckedEngine(
        EngineSettings(num_blocks=24, max_num_batched_tokens=budget),
        listener=lambda scheduled, result: outputs.extend(result.outputs),
    )
    if has_neighbour:
        engine.add(make_request("neighbour", [1, 2], max_tokens=60))
    serve(engine, make_request("r", make_tokens(40), max_tokens=1))
    assert [(o.finish_reason, len(o.new_token_ids)) for o in outputs if o.request_id == "r"] == [("length", 1)]


def test_a07_what_was_generated_before_a_preemption_stays_output():
    def requests():
        params: list[dict[str, Any]] = [
            {"seed": 1},
            {"seed": 2},
            {"seed": 3, "min_tokens": 20},
            {"seed": 4, "min_tokens": 39},
        ]
        for i, fields in enumerate(params):
            yield make_request(f"{i}", make_tokens(3, i), eos=(0, 1, 2), max_tokens=40, stop_token_ids=(3, 4), **fields)

    streams = []
    for num_blocks in (100, 11):
        engine = CheckedEngine(EngineSettings(num_blocks=num_blocks, block_size=4, max_num_seqs=4), vocab_size=60)
        most_preemptions: dict[str, int] = {}
        for request in requests():
            engine.add(request)
        while engine.scheduler.has_unfinished:
            for request in engine.scheduler.requests():
                most_preemptions[request.request_id] = request.num_preemptions
            engine.step()
        engine.drain()
        streams.append([(stream(engine, f"{i}").token_ids, stream(engine, f"{i}").finish_reason) for i in range(4)])
    assert most_preemptions["0"] == 0  # the oldest never gives way
    assert most_preemptions["3"] >= 2
    assert streams[0] == streams[1]
    assert [len(token_ids) for token_ids, _ in streams[0]][3] >= 39


@pytest.mark.parametrize("enable_prefix_caching", [True, False])
@pytest.mark.parametrize("victim", [None, 0, 2])
def test_a08_forks_of_a_half_filled_block_each_write_their_own(enable_prefix_caching, victim):
    engine = CheckedEngine(EngineSettings(num_blocks=24, enable_prefix_caching=enable_prefix_caching))
    engine.add(make_request("r", make_tokens(21), n=4, seed=2**64 - 2, max_tokens=30))
    engine.step()
    engine.step()
    assert engine.coverage["fork of a half-filled block"] == 3
    pool = engine.scheduler.kv.pool
    assert pool.num_blocks - pool.num_free == 1 + 4  # 16 tokens shared by all, and a block of their own each
    if victim is not None:
        engine.abort("r", victim)
    engine.drain()
    answers = {tuple(stream(engine, "r", i).token_ids) for i in range(4)}
    assert len(answers) == 4
    assert {block.ref_count for block in pool.blocks} == {0}


def step_until(engine: CheckedEngine, is_there: Callable[[], bool]) -> None:
    for _ in range(200):
        if is_there():
            return
        engine.step()
    raise AssertionError("the state was not reached")


def status_of(engine: CheckedEngine, request_id: str, index: int = 0) -> tuple[RequestStatus, int, int]:
    for request in engine.scheduler.requests():
        if (request.request_id, request.index) == (request_id, index):
            return request.status, request.num_computed_tokens, request.num_output_tokens
    return RequestStatus.FINISHED, 0, 0


STATES: dict[str, Callable[[tuple[RequestStatus, int, int]], bool]] = {
    "queued": lambda state: state[0] is RequestStatus.WAITING,
    "second chunk of four": lambda state: state[1] == 32,
    "decoding": lambda state: state[2] == 3,
    "preempted": lambda state: state[0] is RequestStatus.PREEMPTED,
}


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("index", [None, 0])
@pytest.mark.parametrize("state", STATES)
def test_a26_an_aborted_request_leaves_nothing_behind(state, n, index):
    num_blocks = 8 if state == "preempted" else 32
    engine = CheckedEngine(EngineSettings(num_blocks=num_blocks, max_num_batched_tokens=17))
    engine.add(make_request("bystander", make_tokens(1), max_tokens=95))
    engine.add(make_request("r", make_tokens(60, seed=1), n=n, max_tokens=30))
    step_until(engine, lambda: STATES[state](status_of(engine, "r")))
    engine.abort("r", index)
    engine.abort("r", index)  # twice does no harm
    if index is None:
        assert [request.request_id for request in engine.scheduler.requests()] == ["bystander"]
    engine.step()
    assert stream(engine, "r", 0).finish_reason == "abort"
    engine.drain()
    assert stream(engine, "bystander").finish_reason == "length"
    assert engine.scheduler._rows.num_free == 8


@pytest.mark.parametrize("index", [None, 1])
def test_a26_a_choice_may_be_aborted_before_it_was_forked(index):
    engine = CheckedEngine(EngineSettings(num_blocks=32, max_num_batched_tokens=16))
    engine.add(make_request("r", make_tokens(60), n=3, max_tokens=5))
    engine.step()
    assert status_of(engine, "r", 1)[0] is RequestStatus.FORKING
    engine.abort("r", index)
    engine.drain()
    reasons = [stream(engine, "r", i).finish_reason for i in range(3)]
    assert reasons == (["abort"] * 3 if index is None else ["length", "abort", "length"])


@pytest.mark.parametrize(("num_blocks_needed", "is_served"), [(6, True), (7, True), (8, True), (9, False)])
@pytest.mark.parametrize("num_prompt_tokens", [1, None], ids=["grows into it", "is it from the start"])
def test_a27_what_can_never_fit_is_refused_and_all_else_is_served(num_blocks_needed, is_served, num_prompt_tokens):
    engine = CheckedEngine(EngineSettings(num_blocks=8, block_size=4))
    num_tokens = 4 * num_blocks_needed
    num_prompt_tokens = num_prompt_tokens or num_tokens
    request = make_request("r", make_tokens(num_prompt_tokens), max_tokens=num_tokens - num_prompt_tokens + 1)
    if is_served:
        engine.add(request)
    else:
        with pytest.raises(RequestRejected, match="need 9 KV blocks of 4 tokens and the pool has 8"):
            engine.add(request)
    serve(engine, make_request("bystander", make_tokens(5, seed=1), max_tokens=20))


def test_a27_no_limit_of_its_own_means_the_models_limit():
    engine = CheckedEngine(EngineSettings(num_blocks=8, block_size=4, max_model_len=34))
    with pytest.raises(RequestRejected, match="need 9 KV blocks"):
        engine.add(make_request("r", [1], max_tokens=None))
    engine = CheckedEngine(EngineSettings(num_blocks=8, block_size=4, max_model_len=33))
    serve(engine, make_request("r", [1], max_tokens=None))
    assert len(stream(engine, "r").token_ids) == 32


def test_a28_an_id_in_use_is_refused_and_its_owner_undisturbed():
    engine = CheckedEngine(EngineSettings(num_blocks=8))
    engine.add(make_request("r", [1, 2, 3], max_tokens=5))
    engine.step()
    with pytest.raises(ValueError, match="request_id 'r' is in use"):
        engine.scheduler.add(make_request("r", [4, 5, 6], max_tokens=5))
    engine.drain()
    assert len(stream(engine, "r").token_ids) == 5


def test_a28_after_an_abort_the_old_requests_end_comes_before_anything_of_the_new():
    engine = EngineCore(EngineSettings(num_blocks=8).build_scheduler(), PlainModel(), clock=lambda: 0.0)
    engine.add_request(make_request("r", [1, 2, 3], max_tokens=9))
    engine.step()
    engine.abort_request("r")
    engine.add_request(make_request("r", [4], max_tokens=1))
    outputs = engine.step().outputs
    assert [output.finish_reason for output in outputs] == ["abort", "length"]
    assert not engine.has_unfinished


class CountedPriority(int):
    """A priority that counts how often anybody compares it."""

    num_comparisons = 0

    def __lt__(self, other: int) -> bool:
        CountedPriority.num_comparisons += 1
        return int(self) < int(other)

    def __eq__(self, other: object) -> bool:
        CountedPriority.num_comparisons += 1
        return int(self) == other

    __hash__ = int.__hash__


def work_of(call: Callable[[], object]) -> tuple[int, int]:
    """Bytecodes that a call executes, and comparisons of priorities."""
    num_opcodes = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal num_opcodes
        frame.f_trace_opcodes = True
        num_opcodes += event == "opcode"
        return trace

    CountedPriority.num_comparisons = 0
    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(previous)
    return num_opcodes, CountedPriority.num_comparisons


def test_a33_a_step_costs_the_same_whoever_waits():
    settings = EngineSettings(num_blocks=64, max_num_seqs=8, policy="priority")
    work = {}
    for num_waiting in (10, 100_000):
        engine = EngineCore(settings.build_scheduler(), PlainModel(), clock=lambda: 0.0)
        template = make_request("", [1, 2, 3], priority=CountedPriority(0), max_tokens=5)
        for i in range(8 + num_waiting):
            engine.add_request(replace(template, request_id=f"{i}"))
        engine.step()
        assert len(engine.scheduler.waiting) == num_waiting
        full_step = work_of(engine.step)  # nobody enters or leaves
        for _ in range(3):
            engine.step()
        turnover_step = work_of(engine.step)  # eight leave, eight enter
        abort = work_of(partial(engine.abort_request, "17"))
        work[num_waiting] = full_step, turnover_step, abort
    for few, many in zip(work[10], work[100_000], strict=True):
        assert few[0] > 0
        assert many[0] <= 1.3 * few[0]
        assert many[1] <= few[1] + 8 * 2 * 2 * 17  # a heap's way down: two comparisons, each of == and <, at 17 levels
