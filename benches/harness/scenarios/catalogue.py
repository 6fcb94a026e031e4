"""All scenarios, in the order in which they run, with the tools that they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Callable

from ..bench import Bench
from ..report import Table
from . import elements, footprint, load, lookups, peers, push

DEBIAN_PACKAGES = {
    "wrk": "wrk",
    "docker-registry": "docker-registry",
    "skopeo": "skopeo",
    "nginx": "nginx",
    "go": "golang-go",
}
REGISTRY = ("docker-registry", "skopeo")


@dataclass(frozen=True)
class Scenario:
    measure: Callable[[Bench], Table]
    tools: Sequence[str] = ()


SCENARIOS: dict[str, Scenario] = {
    "hit64": Scenario(partial(load.measure, name="hit64"), ["wrk"]),
    "hit1": Scenario(partial(load.measure, name="hit1"), ["wrk"]),
    "peers": Scenario(peers.measure, ["wrk", "go", "nginx"]),
    "miss": Scenario(partial(load.measure, name="miss"), ["wrk"]),
    "lookups": Scenario(lookups.measure, ["wrk", *REGISTRY]),
    "push": Scenario(push.measure, REGISTRY),
    "elements": Scenario(elements.measure),
    "start": Scenario(footprint.measure_start),
    "resident": Scenario(footprint.measure_resident, ["wrk"]),
    "binary": Scenario(footprint.measure_binary),
}
