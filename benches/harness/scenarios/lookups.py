"""Each answer looks up two tags at a registry; beside a bare server that does the same."""

from __future__ import annotations

import contextlib

from .. import registry
from ..backing_services import run_registry
from ..bench import Bench
from ..checks import check_answer, doubts_about_cache
from ..client import answers_get
from ..comparison import tabulate
from ..driver import Lane
from ..gateway_config import SMALL_MEMORY, GatewayOptions
from ..process import Server
from ..report import Table
from ..servers import BARE_SERVER, BASELINE, CANARY, running
from ..targets import TARGET_BASELINE_RATIO, TARGET_SERVER_RATIO
from ..workload import WORKLOADS


def measure(bench: Bench) -> Table:
    workload = WORKLOADS["lookups"]
    servers, driver = bench.servers, bench.driver
    with contextlib.ExitStack() as stack:
        asked, parameters = stack.enter_context(run_registry(servers))
        options = GatewayOptions(registry=asked.port, memory=SMALL_MEMORY)
        measured = [
            stack.enter_context(running(servers.spawn_gateway(name, options))) for name in servers.gateway_names()
        ]
        remarks = [doubt for gateway in measured for doubt in doubts_about_cache(gateway, workload)]
        bare = servers.spawn_example(BARE_SERVER, "heads", environment={"HEADS_REGISTRY": f"127.0.0.1:{asked.port}"})
        measured.append(stack.enter_context(running(bare, answers_get("/"))))
        canary = stack.enter_context(running(servers.spawn_named(CANARY)))
        for server in measured:
            check_answer(server, workload, parameters)
        lanes = [with_registry(asked, driver.lane(server, workload)) for server in measured]
        rounds = driver.interleave(workload.title, [*lanes, driver.canary_lane(canary)])
        for server in measured:
            check_answer(server, workload, parameters)
    targets = {BARE_SERVER: TARGET_SERVER_RATIO, BASELINE: TARGET_BASELINE_RATIO}
    return tabulate("lookups", workload.title, rounds, targets, remarks)


def with_registry(asked: Server, lane: Lane) -> Lane:
    """The lane, with what it costs the registry."""
    return Lane(lane.name, lambda seconds: registry.counting_heads(asked, lambda: lane.drive(seconds)))
