"""Where more load stops paying, and how that is drawn."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.bench.benchmark import Settings
from octavo.bench.chart import line_chart
from octavo.bench.lengths import Lengths
from octavo.bench.outcome import Outcome
from octavo.bench.prompts import TokenLine
from octavo.bench.report import summarize
from octavo.bench.sweep import SweepPoint, at_load, find_knee
from octavo.bench.sweep_report import knee_sentence, render_page, throughput_chart
from octavo.bench.workload import RandomWorkload

SVG = "{http://www.w3.org/2000/svg}"


def point(load: float, tokens_per_s: int) -> SweepPoint:
    """A point of that throughput, by one request of a second."""
    outcome = Outcome(0.0, 1.0, [0.5, 1.0], num_prompt_tokens=5, num_output_tokens=tokens_per_s)
    return SweepPoint(load, summarize([outcome]))


def curve(*rates: int) -> list[SweepPoint]:
    return [point(2**index, rate) for index, rate in enumerate(rates)]


@pytest.mark.parametrize(
    ("rates", "knee"),
    [
        ((100, 190, 350, 600, 620, 625), 8),  # saturates
        ((100, 200, 400, 800), 8),  # pays to the end
        ((100, 190, 200, 150), 2),  # collapses
        ((100, 90, 80), 1),  # never pays
        ((100,), 1),
    ],
)
def test_the_knee_is_where_more_load_stops_paying(rates, knee):
    assert find_knee(curve(*rates)).value == knee


@given(limit=st.floats(2, 200), scale=st.integers(50, 5_000))
def test_the_knee_of_a_saturating_curve_does_not_depend_on_its_scale(limit, scale):
    loads = [1, 2, 4, 8, 16, 32, 64]
    rates = [1 - math.exp(-load / limit) for load in loads]
    knees = {
        find_knee([point(load, round(factor * rate)) for load, rate in zip(loads, rates, strict=True)]).value
        for factor in (scale * 1_000, scale * 3_000)
    }
    assert len(knees) == 1


def test_each_point_varies_one_thing_and_has_prompts_of_its_own():
    workload, settings = RandomWorkload(3, Lengths.parse("20"), Lengths.parse("4")), Settings()
    by_rate, same = at_load("rate", 2.5, workload, settings)
    assert by_rate.request_rate == 2.5 and same == settings
    at_four, closed = at_load("concurrency", 4, workload, settings)
    assert closed.max_concurrency == 4 and math.isinf(at_four.request_rate)
    prompts = [each.requests(TokenLine(1, 0))[0].prompt for each in (workload, by_rate, at_four)]
    assert len(set(prompts)) == 3


def test_a_chart_holds_its_points_and_marks_the_knee():
    chart = line_chart("a < b", "load", "ms", {"p50": [(1, 5), (4, 10)], "p95": [(1, 9), (4, 40)]}, marked_x=4)
    root = ElementTree.fromstring(chart)
    assert [line.get("points", "").count(",") for line in root.iter(f"{SVG}polyline")] == [2, 2]
    texts = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    assert {"a < b", "load", "p50", "p95", "knee", "40", "1", "4"} <= set(texts)
    heights = [float(circle.get("cy", "")) for circle in root.iter(f"{SVG}circle")]
    assert heights[0] > heights[1] and heights[2] > heights[3]  # more is higher up


def test_the_page_needs_nothing_else_and_names_the_knee():
    points = curve(100, 190, 350, 600, 620, 625)
    page = render_page("concurrency", points, {"server": {"model": "<script>"}})
    assert knee_sentence("concurrency", points).startswith("The knee is at 8 requests under way: 600 output tokens/s")
    assert "The knee is at 8" in page and page.count("<svg") == 3 and page.count("class=knee") == 1
    assert "<script>" not in page and "src=" not in page and "href=" not in page
    ElementTree.fromstring(throughput_chart("rate", points))
