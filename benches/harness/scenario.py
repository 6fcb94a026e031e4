"""What is measured, what must come back, and the figures to reach."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

TARGET_HIT_RATIO = 1.0
TARGET_BASELINE_RATIO = 1.05
TARGET_MISS_RATIO = 1.05
TARGET_SERVER_RATIO = 1.25
TARGET_GO_RATIO = 1.7
TARGET_SIGNED_US = 3.0
TARGET_JWT_RATIO = 1.1
TARGET_EDGE_RATIO = 1.05
TARGET_STORE_RATIO = 1.02
TARGET_RUNS_RATIO = 1.05
TARGET_TOLD_MS = 2000
TARGET_POLLS_RATIO = 0.2
TARGET_BESIDE_MS = 50
TARGET_MATRIX_S = 2
TARGET_TIMES_CHEAPER = 200.0
TARGET_EVALUATIONS_MS = 50.0
TARGET_LATE_MS = 100.0
TARGET_START_MS = 8.0
TARGET_RESIDENT_MIB = 14.0
TARGET_HELD_MIB = 90.0
TARGET_BINARY_MIB = 22.0

CANARY_QUIET_US = 4.0
CANARY_NOISY_US = 4.6

# reference.rs, upstream.rs, heads.rs and lookups.lua know the same values.
HIT_PARAMETERS = [{"digestFront": "sha256:" + 64 * "1", "digestBack": "sha256:" + 64 * "2"}]
UPSTREAM_PARAMETERS = [{"name": name, "server": f"https://{name}"} for name in "abcdefghij"]
SCRIPT_PARAMETERS = [{"k": "v"}]
BRANCHES = [f"feature-branch-{number}" for number in range(1, 65)]
BRANCH = BRANCHES[0]

GETPARAMS = "/api/v1/getparams.execute"

DEBIAN_PACKAGES = {
    "wrk": "wrk",
    "docker-registry": "docker-registry",
    "skopeo": "skopeo",
    "openssl": "openssl",
    "redis-server": "redis-server",
}


@dataclass(frozen=True)
class LoadScenario:
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
    by_tls: bool = False
    tools: tuple[str, ...] = ("wrk",)

    @property
    def is_hit(self) -> bool:
        return self.script == "hit.lua"


LOAD_SCENARIOS: dict[str, LoadScenario] = {
    "hit64": LoadScenario(
        title="a cache hit, 64 connections",
        script="hit.lua",
        path=GETPARAMS,
        connections=64,
        parameters=HIT_PARAMETERS,
        has_reference=True,
        target=TARGET_HIT_RATIO,
    ),
    "hit1": LoadScenario(
        title="a cache hit, 1 connection",
        script="hit.lua",
        path=GETPARAMS,
        connections=1,
        parameters=HIT_PARAMETERS,
        has_reference=True,
        target=TARGET_HIT_RATIO,
    ),
    "jwt": LoadScenario(
        title="a cache hit by JWT, beside one by a static token, 64 connections",
        script="hit.lua",
        path=GETPARAMS,
        connections=64,
        parameters=HIT_PARAMETERS,
        by_jwt=True,
    ),
    # One table in cleartext and by TLS, of which `EDGE_TLS` is the second half.
    "edge": LoadScenario(
        title="a cache hit by the gateway's accept loop, beside the same without it, 64 connections",
        script="hit.lua",
        path=GETPARAMS,
        connections=64,
        parameters=HIT_PARAMETERS,
        tools=("wrk", "openssl"),
    ),
    "miss": LoadScenario(
        title="a miss to a local upstream, 16 connections",
        script="miss.lua",
        path=f"/miss{GETPARAMS}",
        connections=16,
        parameters=UPSTREAM_PARAMETERS,
        has_reference=True,
        target=TARGET_MISS_RATIO,
    ),
    "unchanged": LoadScenario(
        title="a miss that costs a 304, 16 connections",
        script="miss.lua",
        path=f"/unchanged{GETPARAMS}",
        connections=16,
        parameters=UPSTREAM_PARAMETERS,
    ),
    # One table with a line for each of SCRIPTS.
    "scripts": LoadScenario(
        title="one-shot scripts, beside tokio::process, in turns of a second",
        script="miss.lua",
        path=f"/script-cat{GETPARAMS}",
        connections=1,
        parameters=SCRIPT_PARAMETERS,
    ),
    "digests": LoadScenario(
        title="the digests of two images from docker-registry, 8 connections",
        script="miss.lua",
        path=f"/digests{GETPARAMS}",
        connections=8,
        tools=("wrk", "docker-registry", "skopeo"),
    ),
    # No more connections than the gateway lets ask a registry at once, by default 8 requests.
    "lookups": LoadScenario(
        title="two images looked up in docker-registry for each answer, 4 connections",
        script="lookups.lua",
        path=f"/lookups{GETPARAMS}",
        connections=4,
        tools=("wrk", "docker-registry", "skopeo"),
    ),
    # Beside the same without a signature.
    "signed": LoadScenario(
        title="two signed images looked up for each answer, beside the same unsigned, 4 connections",
        script="lookups.lua",
        path=f"/signed{GETPARAMS}",
        connections=4,
        tools=("wrk", "docker-registry", "skopeo", "openssl"),
    ),
}

# The same, by TLS.
EDGE_TLS = replace(LOAD_SCENARIOS["edge"], by_tls=True)

# The same two images, answered from the cache, over as many connections and as many as `hit64` has.
LOOKED_UP, LOOKED_UP_64 = (
    LoadScenario(
        title="a hit on the answer to a look-up",
        script="hit.lua",
        path=f"/digests{GETPARAMS}",
        connections=connections,
    )
    for connections in (4, 64)
)

# A hit on an answer whose images must be signed.
SIGNED_HIT = replace(LOOKED_UP_64, path=f"/signed-hit{GETPARAMS}")

# What scripts run, by the names of their routes; `{file}` holds the list.
SCRIPTS: dict[str, list[str]] = {
    "script-cat": ["/bin/cat", "{file}"],
    "script-sh": ["/bin/sh", "-c", "cat > /dev/null; echo '{list}'"],
    "script-python": [
        "/usr/bin/python3",
        "-c",
        "import json, sys; json.load(sys.stdin); print('{list}')",
    ],
}

# A script that stays, in the words of docs/workers.md.
WORKER = "worker"
WORKER_COMMAND = [
    "/usr/bin/python3",
    "-c",
    "import json, sys\n"
    "for line in sys.stdin:\n"
    "    asked = json.loads(line)\n"
    "    print(json.dumps({'id': asked['id'], 'output': {list}}), flush=True)\n",
]

# How much longer a question to a worker may take than one over a bare pipe.
TARGET_WORKER_TIME = 1.3

# How much longer a script may take alone than a bare one, and what part of its throughput there is at 8 at once.
TARGET_SCRIPT_TIME = 1.5
TARGET_SCRIPT_THROUGHPUT = 0.97


def script_scenario(route: str, connections: int) -> LoadScenario:
    at_once = "alone" if connections == 1 else f"{connections} at once"
    return LoadScenario(
        title=f"{route}, {at_once}",
        script="miss.lua",
        path=f"/{route}{GETPARAMS}",
        connections=connections,
        parameters=SCRIPT_PARAMETERS,
    )


# The scenarios that are not a table of rounds, with the tools they need.
OTHER_SCENARIOS: dict[str, tuple[str, ...]] = {
    "evaluations": (),
    "replicas": ("wrk", "redis-server"),
    "push": ("docker-registry", "skopeo"),
    "matrix": (),
    "start": (),
    "resident": ("wrk",),
    "binary": (),
}

SCENARIOS = [*LOAD_SCENARIOS, *OTHER_SCENARIOS]


def tools_of(scenario: str) -> tuple[str, ...]:
    if scenario in LOAD_SCENARIOS:
        return LOAD_SCENARIOS[scenario].tools
    return OTHER_SCENARIOS[scenario]
