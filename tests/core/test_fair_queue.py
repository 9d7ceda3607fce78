from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.core import fair_queue
from octavo.core.fair_queue import FairQueue
from octavo.core.messages import ModelRunnerOutput, SampledRow
from octavo.core.request import Request
from octavo.sim.engine_settings import EngineSettings
from tests.core.engine_requests import make_request, make_tokens


def make(tenant: str, arrival: int, priority: int = 0) -> Request:
    source = replace(make_request(f"{tenant}{arrival}", [1]), tenant=tenant)
    return Request(source, 0, (priority, arrival, 0), 10)


def serve(queue: FairQueue, num_tokens: int) -> str:
    """Take out who is next, serve it so much, and say whose it was."""
    request = queue.peek()
    queue.remove(request)
    queue.charge(request, num_prompt_tokens=num_tokens)
    return request.tenant


def test_tenants_take_turns_however_many_requests_each_has():
    queue = FairQueue()
    for arrival in range(6):
        queue.add(make("greedy", arrival))
    queue.add(make("modest", 7))
    queue.add(make("modest", 8))
    assert [serve(queue, 10) for _ in range(8)] == ["greedy", "modest", "greedy", "modest"] + ["greedy"] * 4
    assert not queue
    with pytest.raises(ValueError, match="empty"):
        queue.peek()


def test_the_turns_go_by_tokens_and_an_output_token_counts_twice():
    queue = FairQueue()
    for arrival in range(9):
        queue.add(make("ab"[arrival % 2], arrival))
    first = queue.peek()
    queue.remove(first)
    queue.charge(first, num_prompt_tokens=10, num_output_tokens=10)
    assert first.tenant == "a"
    assert [serve(queue, 10) for _ in range(4)] == ["b", "b", "b", "a"]


def test_whoever_comes_back_has_saved_nothing_up():
    queue = FairQueue()
    for arrival in range(4):
        queue.add(make("busy", arrival))
    assert [serve(queue, 100) for _ in range(2)] == ["busy", "busy"]
    for arrival in range(4, 8):
        queue.add(make("back", arrival))
    assert [serve(queue, 100) for _ in range(4)] == ["busy", "back", "busy", "back"]


def test_among_its_own_a_tenants_turn_falls_to_the_smallest_key():
    queue = FairQueue()
    for request in (make("a", 2), make("a", 1), make("a", 3, priority=-1)):
        queue.add(request)
    order = []
    while queue:
        order.append(queue.peek().request_id)
        queue.remove(queue.peek())
    assert order == ["a3", "a1", "a2"]


def test_tenants_without_number_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(fair_queue, "MAX_TENANTS", 10)
    queue = FairQueue()
    for arrival in range(1_000):
        queue.add(make(f"t{arrival}", arrival))
        serve(queue, 1 + arrival)
    assert len(queue._cost_by_tenant) <= 11


@given(costs=st.lists(st.integers(1, 50), min_size=2, max_size=40), num_tenants=st.integers(2, 5))
def test_who_waits_all_the_time_is_served_about_as_much_as_anybody(costs, num_tenants):
    queue = FairQueue()
    served = dict.fromkeys([f"t{number}" for number in range(num_tenants)], 0)
    for arrival in range(len(costs) * num_tenants):
        queue.add(make(f"t{arrival % num_tenants}", arrival))
    for cost in costs:
        served[serve(queue, cost)] += cost
    assert max(served.values()) - min(served.values()) <= 2 * 50


def test_the_scheduler_admits_in_turns_and_charges_what_it_computes():
    scheduler = EngineSettings(num_blocks=64, max_num_seqs=1, policy="fair").build_scheduler()
    for arrival in range(3):
        scheduler.add(replace(make_request(f"long{arrival}", make_tokens(40, arrival), max_tokens=1), tenant="long"))
    for arrival in range(6):
        scheduler.add(replace(make_request(f"short{arrival}", make_tokens(9, 9 + arrival), max_tokens=1), tenant="s"))
    order = []
    while scheduler.has_unfinished:
        scheduled = scheduler.schedule()
        sampled = tuple(SampledRow(entry.row, (7,)) for entry in scheduled.scheduled if entry.is_sampled)
        for output in scheduler.update(scheduled, ModelRunnerOutput(scheduled.step_id, sampled)):
            order.append(output.request_id.rstrip("0123456789"))
    assert order == ["long"] + ["short"] * 4 + ["long"] + ["short"] * 2 + ["long"]
