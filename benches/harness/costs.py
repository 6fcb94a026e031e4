"""What callgrind and strace write, read as counts."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from .error import BenchError

# A line of callgrind's file: a position, which may be relative to the one before, and instructions.
COST = re.compile(r"[+*-]?\w* (\d+)")
NAME = re.compile(r"(c?)fn=\((\d+)\)(?: (.*))?")
# The end of the mangled name of a Rust function.
HASH = re.compile(r"::h[0-9a-f]{16}(?='|$)")
# A line of strace's summary: shares and times, calls, errors if there are some, the name.
CALLS = re.compile(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)(?:\s+\d+)?\s+(\w+)")


class Costs:
    """Instructions, in all and by function."""

    def __init__(self, own: Counter[str], whole: Counter[str]) -> None:
        # What a function does itself, and with everything that it calls. Recursion counts several times in the latter.
        self.own = own
        self.whole = whole

    @property
    def total(self) -> int:
        return sum(self.own.values())

    def more_than(self, other: Costs, times: int) -> Shares:
        return Shares(per(self.own, other.own, times), per(self.whole, other.whole, times))


class Shares:
    """Instructions of one request."""

    def __init__(self, own: dict[str, float], whole: dict[str, float]) -> None:
        self.own = own
        self.whole = whole

    @property
    def total(self) -> float:
        return sum(self.own.values())


def per(long: Counter[str], short: Counter[str], times: int) -> dict[str, float]:
    """The difference, divided by `times`."""
    return {key: (long[key] - short[key]) / times for key in {*long, *short}}


def read_callgrind(path: Path) -> Costs:
    """Callgrind's format, version 1, without the positions: <https://valgrind.org/docs/manual/cl-format.html>."""
    names: dict[str, str] = {}
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    function, called = "", ""
    is_call = False
    for line in path.read_text(errors="replace").splitlines():
        if cost := COST.fullmatch(line):
            if not is_call:
                own[function] += int(cost[1])
            elif called != function:
                whole[called] += int(cost[1])
            is_call = False
        elif line.startswith("calls="):
            is_call = True
        elif named := NAME.fullmatch(line):
            name = names.setdefault(named[2], HASH.sub("", named[3] or "?"))
            if named[1]:
                called = name
            else:
                function = name
    if not own:
        raise BenchError(f"callgrind counted nothing: {path}")
    return Costs(own, whole)


def read_strace(path: Path) -> Counter[str]:
    lines = path.read_text().splitlines()
    counts = {line[2]: int(line[1]) for line in map(CALLS.fullmatch, lines) if line and line[2] != "total"}
    if not counts:
        raise BenchError(f"strace counted nothing:\n{path.read_text()[-2000:]}")
    return Counter(counts)
