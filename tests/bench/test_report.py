"""What outcomes are made into."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.bench.outcome import Outcome
from octavo.bench.report import parse_objective, percentile, summarize


def outcome(sent_s: float, *chunk_s: float, num_output_tokens: int | None = None) -> Outcome:
    num = len(chunk_s) if num_output_tokens is None else num_output_tokens
    return Outcome(sent_s, chunk_s[-1], list(chunk_s), num_prompt_tokens=10, num_output_tokens=num)


def test_latencies_are_the_fields_definitions():
    measured = outcome(1.0, 1.5, 1.6, 2.0, num_output_tokens=6)
    assert measured.ttft_s == pytest.approx(0.5)
    assert measured.e2el_s == pytest.approx(1.0)
    assert measured.tpot_s == pytest.approx(0.1)  # 5 tokens after the first in 0.5 s
    assert measured.itl_s == pytest.approx([0.1, 0.4])
    assert outcome(0, 1).tpot_s is None


def test_rates_are_over_the_whole_time_and_failures_count_in_none():
    failed = Outcome(0.5, 9.0, error="HttpError: status 503")
    report = summarize([outcome(1.0, 2.0, 3.0), outcome(1.5, 2.5), failed, failed])
    assert (report.num_requests, report.num_failed, report.errors) == (4, 2, {"HttpError: status 503": 2})
    assert report.duration_s == pytest.approx(2.5)  # from the first request, failed or not, to the last text
    assert report.output_tokens_per_s == pytest.approx(3 / 2.5)
    assert report.total_tokens_per_s == pytest.approx(23 / 2.5)
    assert report.goodput_requests_per_s is None
    assert "503" in report.render()


def test_goodput_counts_what_met_every_limit():
    outcomes = [outcome(0, 0.1, 0.2), outcome(0, 0.1, 2.0), outcome(0, 0.6, 0.7), outcome(0, 0.1)]
    report = summarize(outcomes, parse_objective(["ttft:500", "tpot:150"]))
    assert report.goodput_requests_per_s == pytest.approx(2 / 2.0)


def test_no_answer_at_all_is_a_report_too():
    report = summarize([Outcome(0.0, 1.0, error="OSError: refused")])
    assert report.ttft is None and report.output_tokens_per_s == 0
    assert "failed 1 times: OSError: refused" in report.render()


@pytest.mark.parametrize("text", ["ttft", "ttft:", "ttft:-1", "ttft:nan", "itl:5", ":5"])
def test_other_objectives_are_refused(text):
    with pytest.raises(ValueError, match="NAME:MILLISECONDS"):
        parse_objective([text])


@given(values=st.lists(st.floats(0, 1e6), min_size=1, max_size=40), percent=st.sampled_from([0, 50, 95, 99, 100]))
def test_percentiles_are_numpys(values, percent):
    assert percentile(sorted(values), percent) == pytest.approx(np.percentile(values, percent))
