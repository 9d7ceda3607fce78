"""docs/tuning.md and the script that fills it in."""

from __future__ import annotations

import re

from benchmarks.tuning import CHARTS, MEASUREMENTS, PAGE


def test_the_page_shows_every_measurement_and_its_charts():
    page = PAGE.read_text()
    filled = re.findall(r"<!-- (\w+) -->\n(.+?)\n?<!-- end -->", page, re.DOTALL)
    assert {name for name, _ in filled} == {*MEASUREMENTS, "machine"}
    charts = re.findall(r'src="tuning/([\w.]+)"', page)
    assert {path.name for path in CHARTS.iterdir()} == set(charts)
    assert all(text.strip() for _, text in filled)
