"""The scenarios, with the tools that they need."""

from __future__ import annotations

from .workload import WORKLOADS

DEBIAN_PACKAGES = {
    "wrk": "wrk",
    "docker-registry": "docker-registry",
    "skopeo": "skopeo",
    "openssl": "openssl",
    "redis-server": "redis-server",
}

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

SCENARIOS = [*WORKLOADS, *OTHER_SCENARIOS]


def tools_of(scenario: str) -> tuple[str, ...]:
    if scenario in WORKLOADS:
        return WORKLOADS[scenario].tools
    return OTHER_SCENARIOS[scenario]
