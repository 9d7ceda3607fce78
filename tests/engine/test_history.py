"""The last minutes, by times that the test gives."""

from __future__ import annotations

import pytest

from octavo.core.messages import StepStats
from octavo.engine.history import INTERVAL_S, MAX_STEPS, NUM_INTERVALS, Durations, History


def test_durations_are_told_within_a_twentieth():
    durations = Durations()
    assert durations.percentile_ms(50) is None
    for milliseconds in range(1, 101):
        durations.add(milliseconds / 1000)
    for percent in (1, 50, 95, 100):
        assert durations.percentile_ms(percent) == pytest.approx(percent, rel=0.05)
    durations.add(0.0)
    assert durations.percentile_ms(0.5) == pytest.approx(0.001, rel=0.05)


def test_curves_end_with_the_last_whole_interval():
    history = History()
    history.take_first_tokens(1, 0.2, now_s=100.5)
    history.take_next_tokens(3, 0.01, now_s=101.9)
    history.take_step(StepStats(num_tokens=40, num_prompt_tokens=39, step_s=0.3), now_s=101.0)
    history.take_next_tokens(1, 0.01, now_s=102.1)
    curves = history.curves(now_s=103.9)
    assert len(curves.output_tokens_per_s) == NUM_INTERVALS
    assert curves.output_tokens_per_s[-2:] == [0, 4 / INTERVAL_S]
    assert curves.computed_tokens_per_s[-1] == 40 / INTERVAL_S
    assert curves.ttft_p50_ms[-2:] == [None, pytest.approx(200, rel=0.05)]
    assert curves.itl_p95_ms[-1] == pytest.approx(10, rel=0.05)
    assert history.curves(now_s=104.0).output_tokens_per_s[-2:] == [4 / INTERVAL_S, 1 / INTERVAL_S]


def test_steps_are_told_apart_and_bounded():
    history = History()
    history.take_step(StepStats(), now_s=1.0)  # nothing was computed: it only told of aborts
    assert not history.steps
    history.take_step(StepStats(num_tokens=40, num_prompt_tokens=39, step_s=0.3), now_s=2.0)
    assert history.steps[0] == (2.0, 0.3, 39, 1)
    for second in range(NUM_INTERVALS * 20):
        history.take_step(StepStats(num_tokens=1), now_s=float(second))
    assert len(history.steps) == MAX_STEPS
    assert len(history._interval_by_place) == NUM_INTERVALS + 1
