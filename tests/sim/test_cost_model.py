"""Fitting a cost model to measured steps."""

from __future__ import annotations

from dataclasses import astuple
from random import Random

import pytest

from octavo.core.step_work import StepWork
from octavo.sim.cost_model import CostModel


def random_steps(num_steps: int, cost_model: CostModel, noise: float = 0.0) -> list[tuple[StepWork, float]]:
    random = Random(1)
    steps = []
    for _ in range(num_steps):
        num_rows = random.randint(1, 64)
        num_new = num_rows + random.choice((0, random.randint(1, 400)))
        work = StepWork(num_new, random.randint(0, num_rows), num_new * random.randint(1, 500))
        steps.append((work, cost_model.seconds(work) * (1 + random.uniform(-noise, noise))))
    return steps


def test_the_parts_are_found_again():
    cost_model = CostModel(fixed_s=0.004, token_s=2e-4, sampled_s=3e-4, pair_s=2e-8)
    fitted = CostModel.fit(random_steps(200, cost_model))
    assert astuple(fitted) == pytest.approx(astuple(cost_model), rel=1e-6)
    noisy = CostModel.fit(random_steps(2_000, cost_model, noise=0.2))
    for work, seconds in random_steps(50, cost_model):
        assert noisy.seconds(work) == pytest.approx(seconds, rel=0.05)


def test_the_fitted_times_are_together_those_measured_however_long_some_took():
    random = Random(2)
    steps = [
        (work, seconds * random.choice((1, 1, 1, 3)))
        for work, seconds in random_steps(400, CostModel(fixed_s=0.004, token_s=2e-4, sampled_s=3e-4))
    ]
    fitted = CostModel.fit(steps)
    assert sum(fitted.seconds(work) for work, _ in steps) == pytest.approx(sum(seconds for _, seconds in steps))


def test_a_step_that_no_part_tells_of_counts_little():
    steps = [(StepWork(0, num_sampled, 0), 0.001 * num_sampled or 1e-9) for num_sampled in range(10)]
    assert CostModel.fit(steps).sampled_s == pytest.approx(0.001, rel=1e-3)


def test_no_part_is_negative():
    steps = random_steps(100, CostModel(fixed_s=0.004, token_s=2e-4, sampled_s=0.0, pair_s=0.0))
    shrinking = [(work, seconds - 1e-5 * work.num_sampled) for work, seconds in steps]
    fitted = CostModel.fit(shrinking)
    assert min(astuple(fitted)) == 0.0 and fitted.fixed_s > 0 and fitted.token_s > 0


def test_what_never_varies_is_not_told_apart():
    steps = [(StepWork(1, 1, context), 0.005 + 1e-7 * context) for context in range(1, 100)]
    fitted = CostModel.fit(steps)
    for work, seconds in steps:
        assert fitted.seconds(work) == pytest.approx(seconds, rel=1e-6)


def test_a_handful_of_steps_is_not_enough():
    with pytest.raises(ValueError, match="3 steps were measured"):
        CostModel.fit(random_steps(3, CostModel()))
