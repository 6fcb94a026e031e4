"""What a run measures, how long, and on which cores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    gateway: Path
    # The folder of the other programs.
    examples: Path
    # An earlier gateway to compare with.
    baseline: Path | None
    # The length of one round.
    seconds: int
    rounds: int
    server_core: int
    client_core: int
