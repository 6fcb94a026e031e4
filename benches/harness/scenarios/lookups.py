"""Each answer asks a registry; beside bare look-ups, and a hit on the same answer."""

from __future__ import annotations

import contextlib
import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from .. import registry
from ..backing_services import run_registry
from ..bench import Bench
from ..checks import check_answer, doubts_about_cache
from ..client import answers_get
from ..comparison import tabulate, whole_cpu_us
from ..driver import Lane
from ..gateway_config import SMALL_MEMORY, GatewayOptions
from ..process import Server
from ..report import Table, at_least
from ..rounds import Round, drive_loop
from ..servers import BARE_SERVER, BASELINE, CANARY, GATEWAY, running
from ..targets import TARGET_BASELINE_RATIO, TARGET_SERVER_RATIO, TARGET_TIMES_CHEAPER
from ..workload import LOOKED_UP, LOOKED_UP_64, WORKLOADS

LOOP = "bare loop"
HIT, HIT_64 = "gateway, a hit", "gateway, a hit (64 connections)"
INSPECTIONS = 20


def measure(bench: Bench) -> Table:
    workload = WORKLOADS["lookups"]
    servers, driver = bench.servers, bench.driver
    remarks: list[str] = []
    with contextlib.ExitStack() as stack:
        asked, parameters = stack.enter_context(run_registry(servers, "lookups"))
        options = GatewayOptions(registry=asked.port, memory=SMALL_MEMORY)
        gateways = [
            stack.enter_context(running(servers.spawn_gateway(name, options))) for name in servers.gateway_names()
        ]
        environment = {"HEADS_REGISTRY": f"127.0.0.1:{asked.port}"}
        loop, bare = (
            stack.enter_context(
                running(servers.spawn_example(name, "heads", environment=environment), answers_get("/"))
            )
            for name in (LOOP, BARE_SERVER)
        )
        canary = stack.enter_context(running(servers.spawn_named(CANARY)))

        remarks += check_before(gateways, bare, parameters)
        lanes = [
            *(driver.lane(server, workload) for server in gateways),
            Lane(LOOP, lambda seconds: drive_loop(loop, workload.connections, seconds)),
            driver.lane(bare, workload),
            driver.lane(gateways[0], LOOKED_UP, HIT),
            driver.lane(gateways[0], LOOKED_UP_64, HIT_64),
        ]
        lanes = [with_registry(asked, lane) for lane in lanes]
        rounds = driver.interleave(workload.title, [*lanes, driver.canary_lane(canary)])
        for server in [*gateways, bare]:
            check_answer(server, workload, parameters)
        remarks.append(time_inspections(asked.port, bench.settings.server_core))
    targets = {LOOP: None, BARE_SERVER: TARGET_SERVER_RATIO, BASELINE: TARGET_BASELINE_RATIO}
    return tabulate("lookups", workload.title, rounds, targets, [*times_cheaper(rounds), *remarks])


def check_before(gateways: Sequence[Server], bare: Server, parameters: Any) -> list[str]:
    """Doubts about the gateways' answers."""
    remarks = []
    for server in gateways:
        for workload in (WORKLOADS["lookups"], LOOKED_UP):
            check_answer(server, workload, parameters)
            remarks += doubts_about_cache(server, workload)
    check_answer(bare, WORKLOADS["lookups"], parameters)
    return remarks


def with_registry(asked: Server, lane: Lane) -> Lane:
    """The lane, with what it costs the registry."""
    return Lane(lane.name, lambda seconds: registry.counting_heads(asked, lambda: lane.drive(seconds)))


def time_inspections(port: int, core: int) -> str:
    """A remark on how long `skopeo inspect` takes."""
    images = itertools.islice(itertools.cycle(("org/front", "org/back")), INSPECTIONS)
    times = [registry.inspect(port, image, core) * 1000 for image in images]
    spread = f"{min(times):.1f} to {max(times):.1f}"
    return f"skopeo inspect: {statistics.median(times):.1f} ms per image ({spread})"


def times_cheaper(rounds: Mapping[str, Sequence[Round]]) -> list[str]:
    """How many times cheaper a hit is than looking up: for the gateway, and with the registry."""
    lines = []
    for lane in (HIT, HIT_64):
        for who, with_registry_too in (("the gateway", False), ("gateway and registry", True)):
            times = [
                (whole_cpu_us(miss) + with_registry_too * miss.heads * miss.head_us) / whole_cpu_us(hit)
                for miss, hit in zip(rounds[GATEWAY], rounds[lane])
            ]
            line = f"{lane}, is cheaper for {who}: {statistics.median(times):.0f} times"
            line += f" ({min(times):.0f} to {max(times):.0f})"
            if with_registry_too and lane == HIT_64:
                line += f", {at_least(statistics.median(times), TARGET_TIMES_CHEAPER)}"
            lines.append(line)
    return lines
