"""Predictions side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from octavo.bench.report import shown_ms
from octavo.planning.prediction import Prediction

COLUMN_CHARS = 13
NAME_CHARS = 24

COLUMNS: dict[tuple[str, str], Callable[[Prediction], str]] = {
    ("output", "tokens/s"): lambda made: f"{made.report.output_tokens_per_s:.1f}",
    ("requests", "/s"): lambda made: f"{made.report.requests_per_s:.2f}",
    ("TTFT p50", "ms"): lambda made: shown_ms(made.report.ttft, "p50_ms"),
    ("TTFT p95", "ms"): lambda made: shown_ms(made.report.ttft, "p95_ms"),
    ("ITL p50", "ms"): lambda made: shown_ms(made.report.itl, "p50_ms"),
    ("ITL p95", "ms"): lambda made: shown_ms(made.report.itl, "p95_ms"),
    ("end to end", "p95, ms"): lambda made: shown_ms(made.report.e2el, "p95_ms"),
    ("slots", "used, %"): lambda made: f"{100 * made.replay.utilization:.0f}",
    ("KV given and", "unused, %"): lambda made: f"{100 * made.replay.kv_waste:.0f}",
}


def render(prediction_by_name: Mapping[str, Prediction]) -> str:
    """A table with a line for each, without a newline at its end."""
    heads = ["".join(title[line].rjust(COLUMN_CHARS) for title in COLUMNS) for line in (0, 1)]
    rows = {
        name: "".join(read(prediction).rjust(COLUMN_CHARS) for read in COLUMNS.values())
        for name, prediction in prediction_by_name.items()
    }
    lines = [("", heads[0]), ("", heads[1]), *rows.items()]
    return "\n".join(f"{name:<{NAME_CHARS}}{cells}" for name, cells in lines)
