"""Growth: the same figures at several sizes, and what one more costs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Callable

from .process import Server
from .progress import progress
from .report import Table

# The price of one more may rise so much from the first step between two sizes to the last, and so may what should not depend on the size.
TARGET = 1.2
# How often everything but the first answer is measured. The median counts.
SAMPLE = 5
# The gateway writes its file behind the answers. It has written all when nothing was added for so long.
QUIET_SECONDS, MOST_SECONDS = 2.0, 60.0

# By the keys of the columns.
Figures = dict[str, float]


@dataclass(frozen=True)
class Lab:
    """What a series is measured with."""

    gateway: Path
    cmp_gateway: Path
    directory: Path
    # The servers' core.
    core: int


@dataclass(frozen=True)
class Column:
    """A figure. Its price is that of one more, or, if it is `steady`, the figure itself, which should not depend on the size."""

    title: str
    cell: str
    steady: bool = False


@dataclass(frozen=True)
class Series:
    title: str
    sizes: Sequence[int]
    columns: dict[str, Column]
    measure: Callable[[Lab, int], Figures]
    tools: Sequence[str] = field(default=())


def table(name: str, series: Series, lab: Lab, sizes: Sequence[int]) -> Table:
    result = Table(name, series.title, ["", *(column.title for column in series.columns.values())])
    measured: list[tuple[int, Figures]] = []
    for size in sizes:
        progress(f"{name}: {size:,}")
        measured.append((size, series.measure(lab, size)))
    for size, figures in measured:
        result.rows.append([f"{size:,}", *(column.cell.format(figures[key]) for key, column in series.columns.items())])
        result.data[str(size)] = figures
    if len(measured) > 1:
        result.remarks = [remark(column, [(size, figures[key]) for size, figures in measured]) for key, column in series.columns.items()]
    return result


def remark(column: Column, points: Sequence[tuple[int, float]]) -> str:
    """The price at each size, and whether it stays the same."""
    prices = points
    if not column.steady:
        prices = [(m, (b - a) / (m - n)) for (n, a), (m, b) in zip(points, points[1:])]
    unit = column.cell.partition("} ")[2]
    text = ", ".join(f"{price:,.3g} {unit} at {size:,}" for size, price in prices)
    first, last = prices[0][1], prices[-1][1]
    # A figure that shrinks has a price below zero.
    grows = max(last, 0) / first if first > 0 else float("inf" if last > 0 else "0")
    verdict = "flat" if grows <= TARGET else "NOT flat"
    kind = column.title if column.steady else f"one more, {column.title}"
    return f"{kind}: {text}: {verdict} (last / first {grows:.2f})"


def written(file: Path) -> float:
    """The room that the file takes on the disk, in MiB, once the gateway has written everything."""
    last, since, began = -1, time.monotonic(), time.monotonic()
    while time.monotonic() - since < QUIET_SECONDS and time.monotonic() - began < MOST_SECONDS:
        time.sleep(0.1)
        blocks = file.stat().st_blocks
        if blocks != last:
            last, since = blocks, time.monotonic()
    return last / 2048


def sampled(server: Server, run: Callable[[], None], units: int = 1) -> float:
    """The server's own CPU seconds for one of the `units` of a run: the median of several runs."""
    rounds = []
    for _ in range(SAMPLE):
        before = server.cpu_time().own
        run()
        rounds.append(server.cpu_time().own - before)
    return median(rounds) / units
