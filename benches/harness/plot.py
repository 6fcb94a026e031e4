"""Draws what one more costs, as SVG: one panel for each series, a line for each kind of cost, over the first one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT, LEFT, TOP, GAP = 300, 220, 60, 50, 50
# Between these values of one more, over that of the first step.
LOW, HIGH = 0.25, 4.0
COLOURS = ["#0b6bcb", "#b3261e", "#2e7d32", "#8e44ad", "#b26a00"]


def plot(series: Sequence[tuple[str, dict[str, Any]]]) -> str:
    width = LEFT + len(series) * (WIDTH + GAP)
    names = list(dict.fromkeys(name for _, rows in series for name in rows))
    height = TOP + HEIGHT + 60 + 20 * len(names)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{LEFT}" y="20" font-size="14">The price of one more, over that of the first step (1 is flat)</text>',
    ]
    for index, (title, rows) in enumerate(series):
        parts += panel(LEFT + index * (WIDTH + GAP), title, rows, names)
    for index, name in enumerate(names):
        y = TOP + HEIGHT + 50 + 20 * index
        parts.append(f'<line x1="{LEFT}" y1="{y - 4}" x2="{LEFT + 20}" y2="{y - 4}" stroke="{COLOURS[index]}" stroke-width="2"/>')
        parts.append(f'<text x="{LEFT + 28}" y="{y}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def panel(left: float, title: str, rows: dict[str, Any], names: list[str]) -> list[str]:
    counts = sorted({count for row in rows.values() for count in row["at"]})
    first, last = math.log10(counts[0]), math.log10(counts[-1])

    def x(count: float) -> float:
        return left + WIDTH * (math.log10(count) - first) / max(last - first, 1e-9)

    def y(value: float) -> float:
        inside = min(max(value, LOW), HIGH)
        return TOP + HEIGHT * (math.log(HIGH) - math.log(inside)) / (math.log(HIGH) - math.log(LOW))

    parts = [f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>']
    parts.append(f'<text x="{left}" y="{TOP - 10}">{escape(title)}</text>')
    parts.append(f'<rect x="{left}" y="{y(1.2):.1f}" width="{WIDTH}" height="{y(0.8) - y(1.2):.1f}" fill="#0b6bcb" opacity="0.08"/>')
    for value in (LOW, 0.5, 1.0, 2.0, HIGH):
        parts.append(f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    for count in counts:
        parts.append(f'<text x="{x(count):.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{count:,}</text>')
    for name, row in rows.items():
        base = row["each"][0]
        if base <= 0:
            continue
        points = " ".join(f"{x(count):.1f},{y(each / base):.1f}" for count, each in zip(row["at"], row["each"]))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[names.index(name)]}" stroke-width="2"/>')
    return parts
