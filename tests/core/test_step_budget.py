from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.core.engine_core import EngineCore
from octavo.core.executor import FinishedStep
from octavo.core.messages import ModelRunnerOutput, SampledRow, SchedulerOutput
from octavo.core.step_budget import MAX_GROWTH, MIN_CHUNK, StepBudget
from octavo.sim.engine_settings import EngineSettings
from tests.core.engine_requests import make_request, make_tokens


def taught(budget: StepBudget, cost_s: Callable[[int], float], *sizes: int) -> StepBudget:
    for _ in range(20):
        for num_tokens in sizes:
            budget.observe(num_tokens, cost_s(num_tokens))
    return budget


@given(
    base_ms=st.floats(0.1, 20),
    token_ms=st.floats(0.05, 2),
    sizes=st.lists(st.integers(1, 512), min_size=2, max_size=6, unique=True),
    wanted=st.integers(64, 600),
)
def test_the_budget_is_what_fits_into_the_target(base_ms, token_ms, sizes, wanted):
    def cost_s(num_tokens: int) -> float:
        return (base_ms + token_ms * num_tokens) / 1000

    budget = taught(StepBudget(cost_s(wanted)), cost_s, *sorted(sizes))
    believed = MAX_GROWTH * max(sizes)  # as far as the largest of late leads
    assert budget.num_tokens(4) == pytest.approx(max(min(wanted, believed), 4 + MIN_CHUNK), abs=2, rel=0.06)


def test_prompts_come_through_however_slow_the_machine():
    budget = taught(StepBudget(0.001), lambda num_tokens: 1.0 * num_tokens, 1, 100)
    assert budget.num_tokens(5) == 5 + MIN_CHUNK


def test_there_is_no_limit_without_streams_or_before_the_first_step():
    budget = StepBudget(0.001)
    assert budget.num_tokens(5) is None
    assert taught(budget, lambda num_tokens: 0.01 * num_tokens, 1, 100).num_tokens(0) is None


def test_steps_that_are_all_alike_give_a_proportion():
    assert taught(StepBudget(0.2), lambda num_tokens: 0.1, 50).num_tokens(1) == 100


def test_a_machine_that_slows_down_is_noticed():
    budget = taught(StepBudget(0.1), lambda num_tokens: 0.001 * num_tokens, 10, 200)
    assert budget.num_tokens(1) == pytest.approx(100, abs=2)
    for _ in range(5):
        taught(budget, lambda num_tokens: 0.002 * num_tokens, 10, 50)
    assert budget.num_tokens(1) == pytest.approx(50, abs=6)


def test_tokens_that_become_dearer_do_not_make_steps_longer():
    """As those of a long prompt do, which attend to more and more; the first chunk comes after decodes alone."""

    def cost_s(num_tokens: int, num_before: int) -> float:
        return 0.005 + num_tokens * (0.0004 + num_before * 4e-7)

    budget = taught(StepBudget(0.1), lambda num_tokens: cost_s(num_tokens, 0), 4)
    steps_s, num_done = [], 0
    while num_done < 5_000:
        num_tokens = budget.num_tokens(4)
        assert num_tokens is not None
        steps_s.append(cost_s(num_tokens, num_done))
        budget.observe(num_tokens, steps_s[-1])
        num_done += num_tokens - 4
    assert max(steps_s) < 0.12
    assert sum(step_s > 0.09 for step_s in steps_s) > 0.8 * len(steps_s)


class SlowExecutor:
    """Answers every row with the same token; the clock moves on by 1 ms a token."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.num_tokens: list[int] = []

    def execute(self, scheduled: SchedulerOutput) -> FinishedStep:
        self.now_s += 0.001 * scheduled.num_tokens
        self.num_tokens.append(scheduled.num_tokens)
        sampled = tuple(SampledRow(entry.row, (7,)) for entry in scheduled.scheduled if entry.is_sampled)
        return FinishedStep(ModelRunnerOutput(scheduled.step_id, sampled))

    def close(self) -> None: ...


def test_a_long_prompt_is_cut_so_that_streams_go_on():
    executor = SlowExecutor()
    scheduler = EngineSettings(num_blocks=400, max_num_batched_tokens=512, max_model_len=4096).build_scheduler()
    core = EngineCore(scheduler, executor, lambda: executor.now_s, StepBudget(0.050))
    for name in "abcd":
        core.add_request(make_request(name, make_tokens(10, ord(name)), max_tokens=100))
    for _ in range(3):
        core.step()
    core.add_request(make_request("long", make_tokens(2_000), max_tokens=5))
    start = len(executor.num_tokens)
    while any(request.request_id == "long" for request in scheduler.requests()):
        core.step()
    assert max(executor.num_tokens[start:]) <= 52
    assert sum(executor.num_tokens[start:]) >= 2_000
