"""What all scenarios of a run share."""

from __future__ import annotations

from pathlib import Path

from .driver import Driver
from .servers import Servers
from .settings import Settings


class Bench:
    """The servers of a run, and what drives them."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        self.settings = settings
        self.directory = directory
        self.servers = Servers(settings, directory)
        self.driver = Driver(settings)
