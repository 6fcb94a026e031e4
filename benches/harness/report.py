"""Tables, as text and as Markdown, and the verdicts in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


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

    def markdown(self) -> str:
        lines = [f"### {self.name}: {self.title}", ""]
        lines.append("| " + " | ".join(self.header) + " |")
        lines.append("|---" + "|--:" * (len(self.header) - 1) + "|")
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        if self.remarks:
            lines += ["", *(f"- {remark}" for remark in self.remarks)]
        return "\n".join(lines)


def against(value: float, target: float, unit: str = "") -> str:
    verdict = "reached" if value <= target else "NOT reached"
    return f"target ≤ {target:g}{unit} {verdict}"


def latency(microseconds: float) -> str:
    if microseconds < 1000:
        return f"{microseconds:.0f} µs"
    return f"{microseconds / 1000:.2f} ms"
