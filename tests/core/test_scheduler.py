from __future__ import annotations

from dataclasses import replace

import pytest

from octavo.core.messages import ModelRunnerOutput, SampledRow, SchedulerOutput
from octavo.core.request import Request, RequestStatus
from octavo.core.scheduler import MAX_PREEMPTIONS, Scheduler
from octavo.sim.engine_settings import EngineSettings
from tests.core.engine_requests import make_request, make_tokens


def make_scheduler(num_blocks: int = 64, **settings) -> Scheduler:
    return EngineSettings(num_blocks=num_blocks, **settings).build_scheduler()


def step(scheduler: Scheduler, token_id: int = 7, drafts: tuple[int, ...] = ()) -> SchedulerOutput:
    """Schedule a step and answer every sampled row with the same token and drafts; none of the drafts is right."""
    scheduled = scheduler.schedule()
    sampled = [SampledRow(r.row, (token_id,), draft_token_ids=drafts) for r in scheduled.scheduled if r.is_sampled]
    scheduler.update(scheduled, ModelRunnerOutput(scheduled.step_id, tuple(sampled)))
    return scheduled


def num_tokens_by_row(scheduled: SchedulerOutput) -> dict[int, int]:
    return {entry.row: entry.num_scheduled_tokens for entry in scheduled.scheduled}


def names(scheduler: Scheduler) -> list[str]:
    return [request.request_id for request in scheduler.running]


def test_an_unknown_policy_is_refused():
    with pytest.raises(ValueError, match="policy is 'lifo'; choose one of fcfs, priority, fair"):
        make_scheduler(policy="lifo")


def test_a_budget_is_spent_on_who_runs_before_who_waits():
    scheduler = make_scheduler(max_num_batched_tokens=10)
    scheduler.add(make_request("a", make_tokens(6), max_tokens=9))
    scheduler.add(make_request("b", make_tokens(20, 1), max_tokens=9))
    assert num_tokens_by_row(step(scheduler)) == {0: 6, 1: 4}
    scheduler.add(make_request("c", make_tokens(20, 2), max_tokens=9))
    assert num_tokens_by_row(step(scheduler)) == {0: 1, 1: 9}
    assert num_tokens_by_row(step(scheduler)) == {0: 1, 1: 7, 2: 2}
    assert [entry.is_sampled for entry in step(scheduler).scheduled] == [True, True, False]


def test_a_long_prompt_leaves_a_token_for_each_who_runs_behind_it():
    scheduler = make_scheduler(max_num_batched_tokens=10, policy="priority")
    for name in "bcd":
        scheduler.add(make_request(name, [1, 2], max_tokens=50, priority=1))
    step(scheduler)
    scheduler.add(make_request("a", make_tokens(100), max_tokens=9))
    assert num_tokens_by_row(step(scheduler)) == {0: 1, 1: 1, 2: 1, 3: 7}
    assert names(scheduler) == ["a", "b", "c", "d"]
    assert num_tokens_by_row(step(scheduler)) == {3: 7, 0: 1, 1: 1, 2: 1}


def test_with_more_rows_than_budget_the_oldest_run():
    scheduler = make_scheduler(max_num_batched_tokens=4)
    for i in range(4):
        scheduler.add(make_request(f"{i}", [i], max_tokens=50))
    step(scheduler)
    scheduler.max_num_batched_tokens = 2
    assert num_tokens_by_row(step(scheduler)) == {0: 1, 1: 1}


@pytest.mark.parametrize(("policy", "expected"), [("fcfs", "abc"), ("priority", "bca")])
def test_the_order_of_admission_is_the_policys(policy, expected):
    scheduler = make_scheduler(max_num_seqs=1, policy=policy)
    for name, priority in (("a", 2), ("b", -1), ("c", -1)):
        scheduler.add(make_request(name, [1], max_tokens=1, priority=priority))
    order = []
    while scheduler.has_unfinished:
        scheduled = scheduler.schedule()
        order += names(scheduler)
        scheduler.update(scheduled, ModelRunnerOutput(scheduled.step_id, (SampledRow(0, (1,)),)))
    assert order == list(expected)


def test_nobody_overtakes_a_request_that_does_not_fit_yet():
    scheduler = make_scheduler(num_blocks=4, max_num_batched_tokens=64)
    scheduler.add(make_request("a", make_tokens(20), max_tokens=9))
    scheduler.add(make_request("large", make_tokens(40, 1), max_tokens=9))
    scheduler.add(make_request("small", [1], max_tokens=1))
    step(scheduler)
    assert names(scheduler) == ["a"]


def test_admission_leaves_a_block_for_each_who_runs():
    scheduler = make_scheduler(num_blocks=4)
    for i in range(4):
        scheduler.add(make_request(f"{i}", [i], max_tokens=40))
    step(scheduler)
    assert names(scheduler) == ["0", "1"]  # a third would take the third block and leave one for two


def preempted_scheduler() -> Scheduler:
    """Two requests that have filled all four blocks, just before each needs another."""
    scheduler = make_scheduler(num_blocks=4, block_size=4, enable_prefix_caching=False, max_model_len=13)
    scheduler.add(make_request("a", [1], max_tokens=12))
    scheduler.add(make_request("b", [2], max_tokens=12))
    for _ in range(4):
        step(scheduler)
    assert [len(request.block_table.blocks) for request in scheduler.running] == [1, 1]
    for _ in range(4):
        step(scheduler)
    assert [len(request.block_table.blocks) for request in scheduler.running] == [2, 2]
    return scheduler


def test_the_youngest_gives_way_and_keeps_its_tokens():
    scheduler = preempted_scheduler()
    scheduler.add(make_request("c", [3], max_tokens=1))
    scheduled = step(scheduler)
    assert names(scheduler) == ["a"]
    b = scheduler.waiting.peek()  # before c: it arrived first
    assert (b.request_id, b.status, b.num_preemptions) == ("b", RequestStatus.PREEMPTED, 1)
    assert (b.num_output_tokens, b.num_computed_tokens, b.row) == (8, 0, -1)
    assert [entry.row for entry in scheduled.scheduled] == [0]
    assert scheduled.freed_rows == (1,)
    assert scheduler.totals.num_preemptions == 1


def test_nobody_is_admitted_in_a_step_that_preempts():
    scheduler = make_scheduler(num_blocks=5, block_size=4, enable_prefix_caching=False, policy="priority")
    scheduler.add(make_request("a", [1], max_tokens=12, priority=1))
    scheduler.add(make_request("b", make_tokens(5), max_tokens=12, priority=2))
    for _ in range(8):
        step(scheduler)
    assert [len(request.block_table.blocks) for request in scheduler.running] == [2, 3]
    scheduler.add(make_request("urgent", [3], max_tokens=1))
    assert step(scheduler).new_rows == ()  # a took one of b's three blocks; the other two would do
    assert names(scheduler) == ["a"]
    assert len(step(scheduler).new_rows) == 1


def test_a_new_row_says_what_its_request_is_to_be_kept_from():
    scheduler = make_scheduler()
    request = make_request("r", [1, 2], eos=(8,), stop_token_ids=(9,))
    scheduler.add(replace(request, bad_word_token_ids=((3,), (4, 5))))
    (new_row,) = step(scheduler).new_rows
    assert (new_row.stop_token_ids, new_row.bad_word_token_ids) == ((8, 9), ((3,), (4, 5)))


def test_a_preempted_request_comes_back_as_a_new_row_with_all_its_tokens():
    scheduler = preempted_scheduler()
    scheduled = step(scheduler)
    while not scheduled.new_rows:
        scheduled = step(scheduler)
    (new_row,) = scheduled.new_rows
    assert new_row.token_ids == (2,) + 8 * (7,)
    assert new_row.num_prompt_tokens == 1


def test_after_the_last_preemption_a_request_waits_for_all_it_can_need():
    scheduler = make_scheduler(num_blocks=5, block_size=4)
    scheduler.add(make_request("a", [1, 2], max_tokens=5))
    scheduler.add(make_request("b", [3, 4], max_tokens=7))
    step(scheduler)
    b = scheduler.running[1]
    for _ in range(MAX_PREEMPTIONS):
        scheduler._preempt(b)
        step(scheduler)
    assert names(scheduler) == ["a", "b"]
    assert b.block_table.num_promised == 2  # 9 tokens, the last of which is not computed
    assert scheduler.kv.num_available == 5 - 2 - 2
    a = scheduler.running[0]
    assert scheduler._victim(a) is a  # b is no victim any more


def test_drafts_are_dropped_before_anybody_is_preempted():
    scheduler = make_scheduler(num_blocks=3, block_size=4, max_num_batched_tokens=16)
    scheduler.add(make_request("a", [1, 2, 3], max_tokens=6))
    scheduler.add(make_request("b", [4, 5, 6], max_tokens=2))
    step(scheduler, drafts=(9, 9, 9))
    a, b = scheduler.running
    assert (a.draft_token_ids, b.draft_token_ids) == ((9, 9, 9), ())  # b may grow by one token: nothing to guess
    b.block_table.blocks.append(scheduler.kv.pool.allocate())  # the last free block
    scheduled = scheduler.schedule()
    assert num_tokens_by_row(scheduled) == {0: 1, 1: 1}
    assert scheduler.totals.num_preemptions == 0
    assert a.draft_token_ids == ()


def test_rejected_drafts_are_computed_again():
    scheduler = make_scheduler()
    scheduler.add(make_request("a", [1, 2, 3], max_tokens=20))
    step(scheduler, drafts=(8, 9))
    (a,) = scheduler.running
    for accepted, num_computed in (((), 4), ((8,), 6), ((8, 9), 9)):
        scheduled = scheduler.schedule()
        (entry,) = scheduled.scheduled
        assert (entry.draft_token_ids, entry.num_scheduled_tokens) == ((8, 9), 3)
        sampled = SampledRow(0, (*accepted, 5), draft_token_ids=(8, 9))
        (output,) = scheduler.update(scheduled, ModelRunnerOutput(scheduled.step_id, (sampled,)))
        assert output.new_token_ids == (*accepted, 5)
        assert a.num_computed_tokens == num_computed == a.num_tokens - 1


def test_a_request_may_end_in_the_middle_of_its_accepted_drafts():
    scheduler = make_scheduler()
    scheduler.add(make_request("a", [1, 2, 3], max_tokens=20, stop_token_ids=(8,)))
    step(scheduler, drafts=(8, 9))
    scheduled = scheduler.schedule()
    sampled = SampledRow(0, (8, 9, 5), draft_token_ids=(1,))
    (output,) = scheduler.update(scheduled, ModelRunnerOutput(scheduled.step_id, (sampled,)))
    assert (output.new_token_ids, output.finish_reason, output.stop_reason) == ((8,), "stop", 8)
    assert not scheduler.has_unfinished


def test_no_more_is_drafted_than_a_request_may_still_grow():
    scheduler = make_scheduler()
    scheduler.add(make_request("a", [1, 2, 3], max_tokens=4))
    drafts_left = []
    for _ in range(3):
        step(scheduler, drafts=(9, 9, 9))
        drafts_left.append(len(scheduler.running[0].draft_token_ids))
    assert drafts_left == [2, 1, 0]


def test_a_budget_may_cut_drafts_short():
    scheduler = make_scheduler(max_num_batched_tokens=4)
    scheduler.add(make_request("a", [1, 2, 3], max_tokens=20))
    step(scheduler, drafts=(9, 9, 9, 9, 9))
    (entry,) = step(scheduler).scheduled
    assert (entry.num_scheduled_tokens, entry.draft_token_ids, entry.is_sampled) == (4, (9, 9, 9), True)


def test_choices_wait_for_the_leaders_first_token_and_keep_its_place_in_the_queue():
    scheduler = make_scheduler(max_num_batched_tokens=16)
    scheduler.add(make_request("a", make_tokens(20), n=3, max_tokens=9))
    scheduler.add(make_request("b", make_tokens(20, 1), max_tokens=9))
    step(scheduler)
    assert [request.status.value for request in scheduler.requests()] == ["running", "forking", "forking", "waiting"]
    step(scheduler)
    assert names(scheduler) == ["a", "b"]
    step(scheduler)
    assert [(request.request_id, request.index) for request in scheduler.running] == [
        ("a", 0),
        ("a", 1),
        ("a", 2),
        ("b", 0),
    ]


def test_cached_tokens_are_those_of_the_first_admission():
    scheduler = make_scheduler()
    scheduler.add(make_request("a", make_tokens(40), max_tokens=1))
    step(scheduler)
    scheduler.add(make_request("b", make_tokens(40), max_tokens=30))
    step(scheduler)
    (b,) = scheduler.running
    assert b.num_cached_tokens == 32
    scheduler._preempt(b)
    step(scheduler)
    assert (b.num_cached_tokens, b.num_computed_tokens) == (32, 42 - 1)
    assert scheduler.totals.num_prefix_queries == 40 + 40 + 41
    assert scheduler.totals.num_prefix_hits == 32 + 32  # its third block was not full


def test_what_an_empty_step_would_have_told_is_told_with_the_next():
    scheduler = make_scheduler()
    scheduler.add(make_request("a", [1, 2], max_tokens=1))
    step(scheduler)
    empty = scheduler.schedule()
    assert (empty.scheduled, empty.freed_rows, empty.step_id) == ((), (), 1)
    scheduler.add(make_request("b", [1, 2], max_tokens=1))
    scheduled = step(scheduler)
    assert (scheduled.freed_rows, scheduled.step_id) == ((0,), 2)
    assert [new_row.row for new_row in scheduled.new_rows] == [0]


def test_requests_lists_who_has_not_ended():
    scheduler = make_scheduler()
    scheduler.add(make_request("a", [1, 2], n=2, max_tokens=9))
    scheduler.abort("a", 0)
    requests: list[Request] = list(scheduler.requests())
    assert [request.index for request in requests] == [1]
    assert scheduler.abort("a", 0) == []
    assert [output.index for output in scheduler.abort("a")] == [1]
    assert not scheduler.has_unfinished
