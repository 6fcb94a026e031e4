"""Drives servers in turns, so that a noisy minute falls on all of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Callable

from .process import Server
from .progress import progress
from .rounds import Round, drive
from .servers import CANARY
from .settings import Settings
from .workload import WORKLOADS, Workload

WARM_UP_SECONDS = 1
CANARY_SECONDS = 1
# The canary's CPU time per request: on a quiet machine, and at most without a warning.
CANARY_QUIET_US = 4.0
CANARY_NOISY_US = 4.6


@dataclass(frozen=True)
class Lane:
    """A line of a table: a server, and a function that drives it for a number of seconds."""

    name: str
    drive: Callable[[int], Round]


class Driver:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        # The CPU time per request of each round of the canary, in all scenarios.
        self.canary_us: list[float] = []

    def lane(self, server: Server, workload: Workload, name: str | None = None) -> Lane:
        """The server under this workload. The lane has the server's name, unless it is given another."""

        def one_round(seconds: int) -> Round:
            driven = drive(server, workload, seconds, self.settings.client_core)
            server.clear_log()
            return driven

        return Lane(name or server.name, one_round)

    def canary_lane(self, server: Server) -> Lane:
        # It is always driven alike, so that all its figures are comparable.
        lane = self.lane(server, WORKLOADS["hit64"])
        return Lane(lane.name, lambda seconds: lane.drive(min(seconds, CANARY_SECONDS)))

    def interleave(self, title: str, lanes: Sequence[Lane]) -> dict[str, list[Round]]:
        """The rounds of each lane, in turns."""
        for lane in lanes:
            progress(f"{title}: warming up: {lane.name}")
            lane.drive(WARM_UP_SECONDS)
        rounds: dict[str, list[Round]] = {lane.name: [] for lane in lanes}
        for number in range(1, self.settings.rounds + 1):
            for lane in lanes:
                progress(f"{title}: round {number} of {self.settings.rounds}: {lane.name}")
                rounds[lane.name].append(lane.drive(self.settings.seconds))
        self.canary_us += [one.cpu_us for one in rounds.get(CANARY, [])]
        return rounds

    def canary_notes(self) -> list[str]:
        """What the canary says about the machine."""
        if not self.canary_us:
            return []
        figure = statistics.median(self.canary_us)
        notes = [f"canary: {figure:.2f} µs of CPU per request (quiet machine: {CANARY_QUIET_US:.1f})"]
        if figure > CANARY_NOISY_US:
            notes.append(f"canary above {CANARY_NOISY_US} µs: machine is noisy, read ratios only")
        return notes
