"""Hits and misses: the gateway under load, beside servers that answer the same."""

from __future__ import annotations

import contextlib

from ..backing_services import backing_services
from ..bench import Bench
from ..checks import check_answer, doubts_about_cache, doubts_about_log
from ..comparison import tabulate
from ..report import Table
from ..servers import BASELINE, CANARY, REFERENCE, running
from ..targets import TARGET_BASELINE_RATIO
from ..workload import WORKLOADS


def measure(bench: Bench, name: str) -> Table:
    workload = WORKLOADS[name]
    remarks: list[str] = []
    with contextlib.ExitStack() as stack:
        services = stack.enter_context(backing_services(bench.servers, name))
        measured = [
            stack.enter_context(running(bench.servers.spawn_named(server, upstream=services.upstream)))
            for server in names_of_servers(bench, name)
        ]
        canary = stack.enter_context(running(bench.servers.spawn_named(CANARY)))

        for server in measured:
            check_answer(server, workload, services.parameters)
            remarks += doubts_about_cache(server, workload)
        lanes = [bench.driver.lane(server, workload) for server in measured]
        rounds = bench.driver.interleave(workload.title, [*lanes, bench.driver.canary_lane(canary)])
        for server in measured:
            check_answer(server, workload, services.parameters)
            remarks += doubts_about_log(server, workload, bench.settings.client_core)
    targets = {REFERENCE: workload.target, BASELINE: TARGET_BASELINE_RATIO}
    return tabulate(name, workload.title, rounds, targets, remarks)


def names_of_servers(bench: Bench, name: str) -> list[str]:
    return [*bench.servers.gateway_names(), *([REFERENCE] if WORKLOADS[name].has_reference else [])]
