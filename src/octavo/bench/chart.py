"""Charts as SVG: lines over a logarithmic axis, enough for curves of load."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 46, 46
COLOURS = ("#1f6f8b", "#c8553d", "#6a994e", "#7d5ba6")
NUM_TICKS = 4

Line = Sequence[tuple[float, float]]  # (x, y) with x > 0 in growing order


def line_chart(
    title: str, x_label: str, y_label: str, lines: Mapping[str, Line], *, marked_x: float | None = None
) -> str:
    """An <svg> with one line for each name. `marked_x` gets a vertical rule."""
    xs = sorted({x for line in lines.values() for x, _ in line})
    y_top = _round_up(max((y for line in lines.values() for _, y in line), default=1.0))
    x_low, x_high = math.log(xs[0]), math.log(xs[-1])

    def place_x(x: float) -> float:
        share = (math.log(x) - x_low) / (x_high - x_low) if x_high > x_low else 0.5
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def place_y(y: float) -> float:
        return HEIGHT - BOTTOM - y / y_top * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="sans-serif" '
        f'font-size="12" fill="#333"><title>{escape(title)}</title>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        _text(LEFT, 18, title, size=14),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_label, anchor="middle"),
        _text(LEFT, 36, y_label, colour="#777"),
    ]
    for tick in range(NUM_TICKS + 1):
        y = y_top * tick / NUM_TICKS
        parts.append(_rule(LEFT, place_y(y), WIDTH - RIGHT, place_y(y), "#ddd"))
        parts.append(_text(LEFT - 8, place_y(y) + 4, f"{y:g}", anchor="end"))
    parts += [_text(place_x(x), HEIGHT - BOTTOM + 18, f"{x:g}", anchor="middle") for x in xs]
    if marked_x is not None:
        parts.append(_rule(place_x(marked_x), TOP, place_x(marked_x), HEIGHT - BOTTOM, "#999", dashes="4 3"))
        parts.append(_text(place_x(marked_x) + 5, TOP + 12, "knee", colour="#777"))
    for index, (name, line) in enumerate(lines.items()):
        colour = COLOURS[index % len(COLOURS)]
        points = " ".join(f"{place_x(x):.1f},{place_y(y):.1f}" for x, y in line)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{place_x(x):.1f}" cy="{place_y(y):.1f}" r="3" fill="{colour}"/>' for x, y in line]
        parts.append(_text(WIDTH - RIGHT - 60 * (len(lines) - index - 1), 36, name, anchor="end", colour=colour))
    return "\n".join([*parts, "</svg>"])


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 5, 8 or 10 times a power of ten: each is four times a number that reads well."""
    power: float = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(power * step for step in (1, 2, 4, 5, 8, 10) if power * step >= value)


def _rule(x1: float, y1: float, x2: float, y2: float, colour: str, dashes: str = "none") -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-dasharray="{dashes}"/>'
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, colour: str = "#333") -> str:
    attributes = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"'
    return f"<text {attributes}>{escape(text)}</text>"
