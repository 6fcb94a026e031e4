"""What wrk asks of the servers, and what must come back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .targets import TARGET_HIT_RATIO, TARGET_MISS_RATIO

# reference.rs, upstream.rs, heads.rs and lookups.lua know the same values.
HIT_PARAMETERS = [{"digestFront": "sha256:" + 64 * "1", "digestBack": "sha256:" + 64 * "2"}]
UPSTREAM_PARAMETERS = [{"name": name, "server": f"https://{name}"} for name in "abcdefghij"]
SCRIPT_PARAMETERS = [{"k": "v"}]
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
    by_jwt: bool = False

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
    "jwt": replace(HIT, title="a cache hit by JWT, beside one by a static token, 64 connections", by_jwt=True),
    "miss": Workload(
        title="a miss to a local upstream, 16 connections",
        script="miss.lua",
        path=f"/miss{GETPARAMS}",
        connections=16,
        parameters=UPSTREAM_PARAMETERS,
        has_reference=True,
        target=TARGET_MISS_RATIO,
    ),
    "unchanged": Workload(
        title="a miss that costs a 304, 16 connections",
        script="miss.lua",
        path=f"/unchanged{GETPARAMS}",
        connections=16,
        parameters=UPSTREAM_PARAMETERS,
    ),
    # One table with a line for each of SCRIPTS.
    "scripts": Workload(
        title="one-shot scripts, beside tokio::process, in turns of a second",
        script="miss.lua",
        path=f"/script-cat{GETPARAMS}",
        connections=1,
        parameters=SCRIPT_PARAMETERS,
    ),
    "digests": Workload(
        title="the digests of two images from docker-registry, 8 connections",
        script="miss.lua",
        path=f"/digests{GETPARAMS}",
        connections=8,
    ),
    # No more connections than the gateway lets ask a registry at once, by default 8 requests.
    "lookups": Workload(
        title="two images looked up in docker-registry for each answer, 4 connections",
        script="lookups.lua",
        path=f"/lookups{GETPARAMS}",
        connections=4,
    ),
    # Beside the same without a signature.
    "signed": Workload(
        title="two signed images looked up for each answer, beside the same unsigned, 4 connections",
        script="lookups.lua",
        path=f"/signed{GETPARAMS}",
        connections=4,
    ),
}

# The same two images, answered from the cache, over as many connections and as many as `hit64` has.
LOOKED_UP, LOOKED_UP_64 = (
    Workload(
        title="a hit on the answer to a look-up",
        script="hit.lua",
        path=f"/digests{GETPARAMS}",
        connections=connections,
    )
    for connections in (4, 64)
)

# A hit on an answer whose images must be signed.
SIGNED_HIT = replace(LOOKED_UP_64, path=f"/signed-hit{GETPARAMS}")
