"""An hour of previews that are asked about and built: what a source is asked meanwhile, and how old the answers are."""

from __future__ import annotations

import time
from typing import Any

from ..client import ask_route
from ..process import Server
from ..service import Service
from .hooks import deliver
from .refreshes import SETS

# A minute takes a second, so the hour takes a minute.
MINUTES = 60
PREVIEWS = 200
# Half a minute, less what the calls themselves take.
OLD_AFTER_SECONDS = 0.45


class Source(Service):
    """A source of lists. Each has a version, which a build raises."""

    def __init__(self) -> None:
        self.requests = 0
        self.versions = [1] * PREVIEWS
        super().__init__()

    def answer(self, method: str, path: str, body: bytes) -> Any:
        self.requests += 1
        return [{"name": "app", "version": str(self.versions[int(path[1:])])}]


def follow(gateway: Server, source: Source, hooks: int | None) -> tuple[int, int]:
    """Asks about all previews once in each second, and builds each of them once.

    Returns the requests to the source, and how many answers were old half a minute after the build or later.
    """
    built: dict[int, float] = {}
    before, late, began = source.requests, 0, time.monotonic()
    for minute in range(MINUTES):
        for number in range(PREVIEWS):
            due = began + minute + number / PREVIEWS
            time.sleep(max(0.0, due - time.monotonic()))
            # Each preview is built once, half a minute after it was asked about.
            target = (number + PREVIEWS // 2) % PREVIEWS
            if target % MINUTES == minute:
                source.versions[target] += 1
                built[target] = time.monotonic()
                if hooks is not None:
                    deliver(hooks, {"n": str(target)})
            asked = time.monotonic()
            answer = ask_route(gateway.port, "items", f"set-{number % SETS}", {"n": str(number)})
            is_old = answer[0]["version"] != str(source.versions[number])
            late += is_old and asked - built.get(number, asked) >= OLD_AFTER_SECONDS
    return source.requests - before, late
