"""What wrk asks of the servers, and what must come back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .targets import TARGET_HIT_RATIO, TARGET_MISS_RATIO

# reference.rs, upstream.rs, heads.rs and lookups.lua know the same values.
HIT_PARAMETERS = [{"digestFront": "sha256:" + 64 * "1", "digestBack": "sha256:" + 64 * "2"}]
UPSTREAM_PARAMETERS = [{"name": name, "server": f"https://{name}"} for name in "abcdefghij"]
BRANCHES = [f"feature-branch-{number}" for number in range(1, 65)]
BRANCH = BRANCHES[0]

GETPARAMS = "/api/v1/getparams.execute"


@dataclass(frozen=True)
class Workload:
    """A kind of request, driven by wrk."""

    title: str
    script: str
    path: str
    connections: int
    # The answer; None where it is known only once the scenario is set up.
    parameters: Any = None
    has_reference: bool = False
    target: float | None = None

    @property
    def is_hit(self) -> bool:
        return self.script == "hit.lua"


HIT = Workload(
    title="a cache hit, 64 connections",
    script="hit.lua",
    path=GETPARAMS,
    connections=64,
    parameters=HIT_PARAMETERS,
)

WORKLOADS: dict[str, Workload] = {
    "hit64": replace(HIT, has_reference=True, target=TARGET_HIT_RATIO),
    "hit1": replace(
        HIT, title="a cache hit, 1 connection", connections=1, has_reference=True, target=TARGET_HIT_RATIO
    ),
    "miss": Workload(
        title="a miss to a local upstream, 16 connections",
        script="miss.lua",
        path=f"/miss{GETPARAMS}",
        connections=16,
        parameters=UPSTREAM_PARAMETERS,
        has_reference=True,
        target=TARGET_MISS_RATIO,
    ),
    # No more connections than the gateway lets ask a registry at once, by default 8 requests.
    "lookups": Workload(
        title="two images looked up in docker-registry for each answer, 4 connections",
        script="lookups.lua",
        path=f"/lookups{GETPARAMS}",
        connections=4,
    ),
}
