"""All scenarios, in the order in which they run, with the tools that they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Callable

from ..bench import Bench
from ..report import Table
from . import elements, footprint, jwt, load, lookups, push, replicas, scripts, signed

DEBIAN_PACKAGES = {
    "wrk": "wrk",
    "docker-registry": "docker-registry",
    "skopeo": "skopeo",
    "openssl": "openssl",
    "redis-server": "redis-server",
}
REGISTRY = ("docker-registry", "skopeo")


@dataclass(frozen=True)
class Scenario:
    measure: Callable[[Bench], Table]
    tools: Sequence[str] = ()


SCENARIOS: dict[str, Scenario] = {
    "hit64": Scenario(partial(load.measure, name="hit64"), ["wrk"]),
    "hit1": Scenario(partial(load.measure, name="hit1"), ["wrk"]),
    "jwt": Scenario(jwt.measure, ["wrk"]),
    "miss": Scenario(partial(load.measure, name="miss"), ["wrk"]),
    "unchanged": Scenario(partial(load.measure, name="unchanged"), ["wrk"]),
    "scripts": Scenario(scripts.measure, ["wrk"]),
    "digests": Scenario(partial(load.measure, name="digests"), ["wrk", *REGISTRY]),
    "lookups": Scenario(lookups.measure, ["wrk", *REGISTRY]),
    "signed": Scenario(signed.measure, ["wrk", *REGISTRY, "openssl"]),
    "replicas": Scenario(replicas.measure, ["wrk", "redis-server"]),
    "push": Scenario(push.measure, REGISTRY),
    "elements": Scenario(elements.measure),
    "start": Scenario(footprint.measure_start),
    "resident": Scenario(footprint.measure_resident, ["wrk"]),
    "binary": Scenario(footprint.measure_binary),
}
