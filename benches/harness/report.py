"""Tables, as text and as Markdown, and the ratios in them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .rounds import Round
from .process import TICKS_PER_SECOND
from .targets import TARGET_SCRIPT_THROUGHPUT, TARGET_SCRIPT_TIME, TARGET_WORKER_TIME


@dataclass
class Table:
    """One scenario: what is printed, and the data behind it."""

    name: str
    title: str
    header: list[str]
    rows: list[list[str]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        table = [self.header, *self.rows]
        widths = [max(len(row[column]) for row in table) for column in range(len(self.header))]
        lines = [f"{self.name}: {self.title}"]
        for first, *others in table:
            cells = [cell.rjust(width) for cell, width in zip(others, widths[1:])]
            lines.append("  " + "  ".join([first.ljust(widths[0]), *cells]))
        lines += [f"  {remark}" for remark in self.remarks]
        return "\n".join(lines)

    def add_script(
        self,
        route: str,
        alone: dict[str, list[Round]],
        eight: dict[str, list[Round]],
        gateway: str,
        bare: str,
        holder: str,
        held: float,
    ) -> None:
        """A line with the time of one program alone and the throughput of eight at once, and their ratios."""

        def times(name: str) -> list[float]:
            return [one.p50_us for one in alone[name]]

        def rates(name: str) -> list[float]:
            return [one.requests_per_second for one in eight[name]]

        def over(ours: list[float], theirs: list[float]) -> tuple[float, str]:
            ratios = [our / their for our, their in zip(ours, theirs)]
            median = statistics.median(ratios)
            return median, f"{median:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"

        time, time_text = over(times(gateway), times(bare))
        rate, rate_text = over(rates(gateway), rates(bare))
        with_memory, memory_text = over(times(holder), times(gateway))
        self.rows.append(
            [
                route,
                latency(statistics.median(times(gateway))),
                latency(statistics.median(times(bare))),
                time_text,
                f"{statistics.median(rates(gateway)):.0f}/s",
                f"{statistics.median(rates(bare)):.0f}/s",
                rate_text,
            ]
        )
        self.remarks += [
            f"{route}: time alone / bare: {against(time, TARGET_SCRIPT_TIME)}; "
            f"throughput at 8 / bare: {at_least(rate, TARGET_SCRIPT_THROUGHPUT)}",
            f"{route}: alone with {held:.0f} MiB held / with little: {memory_text}",
        ]
        self.data[route] = {
            "time_us": statistics.median(times(gateway)),
            "time_ratio": time,
            "throughput": statistics.median(rates(gateway)),
            "throughput_ratio": rate,
            "held_mib": held,
            "held_ratio": with_memory,
        }

    def add_worker(self, ours: Sequence[Round], bare: Sequence[Round], one_shot: str) -> None:
        """A remark on a worker's time beside a bare pipe's, and beside that of a program that is started each time."""
        ratios = [our.p50_us / their.p50_us for our, their in zip(ours, bare)]
        ratio = statistics.median(ratios)
        time, bare_time = (statistics.median(one.p50_us for one in rounds) for rounds in (ours, bare))
        cheaper = self.data[one_shot]["time_us"] / time
        self.remarks.append(
            f"worker (python): {latency(time)} beside {latency(bare_time)} over a bare pipe, {ratio:.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f}), {against(ratio, TARGET_WORKER_TIME)}; "
            f"{one_shot} takes {cheaper:.0f} times as long"
        )
        self.data["worker"] = {"time_us": time, "time_ratio": ratio, "one_shot_ratio": cheaper}

    def markdown(self) -> str:
        lines = [f"### {self.name}: {self.title}", ""]
        lines.append("| " + " | ".join(self.header) + " |")
        lines.append("|---" + "|--:" * (len(self.header) - 1) + "|")
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        if self.remarks:
            lines += ["", *(f"- {remark}" for remark in self.remarks)]
        return "\n".join(lines)


@dataclass(frozen=True)
class Ratio:
    """One server's CPU time per request over another's, round by round."""

    over: str
    median: float
    low: float
    high: float
    of: str = "gateway"

    @classmethod
    def between(
        cls, over: str, ours: Sequence[Round], theirs: Sequence[Round], of: str = "gateway"
    ) -> Ratio:
        ratios = [whole_cpu_us(our) / whole_cpu_us(their) for our, their in zip(ours, theirs)]
        return cls(over, statistics.median(ratios), min(ratios), max(ratios), of)

    def text(self, target: float | None) -> str:
        line = f"{self.of} / {self.over}: {self.median:.2f} ({self.low:.2f} to {self.high:.2f})"
        return line if target is None else f"{line}, {against(self.median, target)}"


def whole_cpu_us(one: Round) -> float:
    """With the children; never less than the clock can tell, so that it may divide."""
    tick_us = 1e6 / TICKS_PER_SECOND
    return max(one.cpu_us + one.children_us, tick_us / one.requests)


def against(value: float, target: float, unit: str = "") -> str:
    verdict = "reached" if value <= target else "NOT reached"
    return f"target ≤ {target:g}{unit} {verdict}"


def at_least(value: float, target: float) -> str:
    verdict = "reached" if value >= target else "NOT reached"
    return f"target ≥ {target:g} {verdict}"


def latency(microseconds: float) -> str:
    if microseconds < 1000:
        return f"{microseconds:.0f} µs"
    return f"{microseconds / 1000:.2f} ms"
