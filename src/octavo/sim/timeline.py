"""A replay as a picture: a line a slot, and who had it when. As text and as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from octavo.sim.replay import ReplayReport

COLOURS = ("#1f6f8b", "#b5452e", "#4f7a36", "#7d5ba6", "#8a6a00", "#4a6fa5")  # white letters are readable on each
SLOT_HEIGHT, BAR_HEIGHT, LEFT, TOP, WIDTH = 30, 24, 60, 34, 860
GAP = 34  # between one picture and the next
IDLE = "."


class Span(NamedTuple):
    """A request in a slot."""

    name: str
    slot: int
    start_s: float
    end_s: float


class Timeline(NamedTuple):
    """What happened on `num_slots` slots."""

    title: str
    num_slots: int
    spans: Sequence[Span]

    @classmethod
    def of(cls, title: str, num_slots: int, report: ReplayReport) -> Timeline:
        """The timeline of a replay whose requests have all ended."""
        spans = [
            Span(name, times.row, times.scheduled_s, times.finished_s)
            for name, times in report.times_by_id.items()
            if times.finished_s is not None
        ]
        return cls(f"{title}: {100 * report.utilization:.0f}% of the slots used", num_slots, spans)

    @property
    def end_s(self) -> float:
        """When the last request ended."""
        return max(span.end_s for span in self.spans)

    def render(self, seconds_per_char: float) -> list[str]:
        """Lines of plain text, all of one width: the title, then a line for each slot."""
        num_chars = round(self.end_s / seconds_per_char)
        lines = [f"{self.title}"]
        for slot in range(self.num_slots):
            chars = [IDLE] * num_chars
            for name, _, start_s, end_s in self._in_slot(slot):
                start, end = round(start_s / seconds_per_char), round(end_s / seconds_per_char)
                chars[start:end] = name[0] * (end - start)
            lines.append(f"slot {slot + 1}  {''.join(chars)}")
        width = max(map(len, lines))
        return [line.ljust(width) for line in lines]

    def _in_slot(self, slot: int) -> list[Span]:
        return [span for span in self.spans if span.slot == slot]


def render_beside(timelines: Sequence[Timeline], max_chars: int) -> str:
    """Timelines side by side in text, on one scale, the longest `max_chars` wide."""
    seconds_per_char = max(timeline.end_s for timeline in timelines) / max_chars
    columns = [timeline.render(seconds_per_char) for timeline in timelines]
    return "\n".join("   ".join(line).rstrip() for line in zip(*columns, strict=True))


def draw(timelines: Sequence[Timeline], x_label: str) -> str:
    """Timelines one below the other as an <svg>, on one scale."""
    scale = (WIDTH - LEFT - 10) / max(timeline.end_s for timeline in timelines)
    parts, top = [], TOP
    names = sorted({span.name for timeline in timelines for span in timeline.spans})
    colour_by_name = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
    for timeline in timelines:
        parts.append(f'<text x="{LEFT}" y="{top - 10}" font-size="14">{escape(timeline.title)}</text>')
        width = timeline.end_s * scale
        for slot in range(timeline.num_slots):
            y = top + slot * SLOT_HEIGHT
            parts.append(f'<text x="{LEFT - 10}" y="{y + 17}" text-anchor="end" fill="#777">slot {slot + 1}</text>')
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR_HEIGHT}" fill="#eee"/>')
        for span in timeline.spans:
            parts.append(_bar(span, top + span.slot * SLOT_HEIGHT, scale, colour_by_name[span.name]))
        top += timeline.num_slots * SLOT_HEIGHT + GAP
    label = f'<text x="{WIDTH - 10}" y="{top - 14}" text-anchor="end" fill="#777">{escape(x_label)}</text>'
    titles = "; ".join(timeline.title for timeline in timelines)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" role="img" font-family="sans-serif" '
        f'font-size="12" fill="#333"><title>{escape(titles)}</title><rect width="{WIDTH}" height="{top}" fill="#fff"/>'
    )
    return "\n".join([head, *parts, label, "</svg>\n"])


def _bar(span: Span, y: float, scale: float, colour: str) -> str:
    x, width = LEFT + span.start_s * scale, (span.end_s - span.start_s) * scale
    text = f"{span.name} {span.end_s - span.start_s:g}"
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{width - 1:.1f}" height="{BAR_HEIGHT}" rx="3" fill="{colour}"/>'
        f'<text x="{x + 6:.1f}" y="{y + 17}" fill="#fff">{escape(text)}</text>'
    )
