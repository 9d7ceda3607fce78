"""A sweep as one page: what was asked, the two curves with the knee, and every figure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from octavo.bench.chart import Line, line_chart
from octavo.bench.report import shown_ms
from octavo.bench.sweep import SweepPoint, find_knee

LABEL_BY_VARIED = {"concurrency": "requests under way", "rate": "requests a second"}
COLUMNS: dict[str, Callable[[SweepPoint], str]] = {
    "load": lambda point: f"{point.value:g}",
    "requests/s": lambda point: f"{point.report.requests_per_s:.2f}",
    "output tokens/s": lambda point: f"{point.report.output_tokens_per_s:.1f}",
    "TTFT p50, ms": lambda point: shown_ms(point.report.ttft, "p50_ms"),
    "TTFT p95, ms": lambda point: shown_ms(point.report.ttft, "p95_ms"),
    "ITL p50, ms": lambda point: shown_ms(point.report.itl, "p50_ms"),
    "ITL p95, ms": lambda point: shown_ms(point.report.itl, "p95_ms"),
    "end to end p95, ms": lambda point: shown_ms(point.report.e2el, "p95_ms"),
    "failed": lambda point: str(point.report.num_failed),
}
STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:720px;margin:2em auto;padding:0 1em;color:#333}"
    "table{border-collapse:collapse;width:100%}td,th{padding:.3em .6em;text-align:right;border-bottom:1px solid #ddd}"
    "tr.knee{background:#fdf3d8}pre{background:#f6f6f6;padding:1em;overflow:auto;font-size:12px}svg{width:100%}"
)


def knee_sentence(varied: str, points: Sequence[SweepPoint]) -> str:
    """Where the knee is, in words."""
    knee = find_knee(points)
    report = knee.report
    ttft, itl = shown_ms(report.ttft, "p95_ms"), shown_ms(report.itl, "p95_ms")
    return (
        f"The knee is at {knee.value:g} {LABEL_BY_VARIED[varied]}: {report.output_tokens_per_s:.0f} output tokens/s at "
        f"a p95 of {ttft} ms to the first token and {itl} ms between tokens."
    )


def throughput_chart(varied: str, points: Sequence[SweepPoint]) -> str:
    """Output tokens a second over load, as SVG."""
    line = [(point.value, point.report.output_tokens_per_s) for point in points]
    return line_chart(
        "Throughput", LABEL_BY_VARIED[varied], "output tokens/s", {"output": line}, marked_x=find_knee(points).value
    )


def latency_chart(varied: str, points: Sequence[SweepPoint], name: str, title: str) -> str:
    """p50 and p95 of one latency over load, as SVG."""

    def line(percentile: str) -> Line:
        latencies = [(point.value, getattr(point.report, name)) for point in points]
        return [(value, getattr(latency, percentile)) for value, latency in latencies if latency is not None]

    lines = {"p50": line("p50_ms"), "p95": line("p95_ms")}
    return line_chart(title, LABEL_BY_VARIED[varied], "ms", lines, marked_x=find_knee(points).value)


def render_page(varied: str, points: Sequence[SweepPoint], about: dict[str, Any]) -> str:
    """The page as HTML; it needs nothing from the network."""
    knee = find_knee(points)
    rows = "".join(_row(point, is_knee=point is knee) for point in points)
    return "\n".join(
        [
            "<!doctype html><html lang=en><meta charset=utf-8><title>octavo bench sweep</title>",
            f"<style>{STYLE}</style><h1>Throughput and latency over load</h1>",
            f"<p>{escape(knee_sentence(varied, points))}</p>",
            throughput_chart(varied, points),
            latency_chart(varied, points, "ttft", "Time to first token"),
            latency_chart(varied, points, "itl", "Inter-token latency"),
            f"<table><tr>{''.join(f'<th>{column}</th>' for column in COLUMNS)}</tr>{rows}</table>",
            f"<h2>What was measured</h2><pre>{escape(json.dumps(about, indent=2, default=str))}</pre></html>",
        ]
    )


def _row(point: SweepPoint, *, is_knee: bool) -> str:
    cells = "".join(f"<td>{show(point)}</td>" for show in COLUMNS.values())
    return f"<tr{' class=knee' if is_knee else ''}>{cells}</tr>"
