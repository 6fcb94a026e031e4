"""A replica with a shared store: what the store costs it."""

from __future__ import annotations

import contextlib
import statistics
import time

from ..backing_services import run_store, run_upstream
from ..bench import Bench
from ..client import answers_hits
from ..comparison import add_ratio, tabulate
from ..gateway_config import GatewayOptions
from ..process import Server
from ..report import Table
from ..rounds import Round
from ..servers import GATEWAY, running
from ..targets import TARGET_STORE_RATIO
from ..workload import WORKLOADS

ALONE, ALONE_MISS, STORE_MISS = "without a store", "a miss without", "a miss with a store"
STARTS = 5


def measure(bench: Bench) -> Table:
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(run_store(bench.servers))
        upstream = stack.enter_context(run_upstream(bench.servers)).port
        with_store, alone = (
            stack.enter_context(running(bench.servers.spawn_gateway(name, options)))
            for name, options in (
                (GATEWAY, GatewayOptions(upstream=upstream, store=store)),
                (ALONE, GatewayOptions(upstream=upstream)),
            )
        )
        rounds = drive_both(bench, with_store, alone)
        starts = [start_once(bench, store) for _ in range(STARTS)]
        table = tabulate("replicas", "one replica with a store, and without", rounds, {})
        add_ratio(table, GATEWAY, ALONE, rounds, TARGET_STORE_RATIO)
        add_ratio(table, STORE_MISS, ALONE_MISS, rounds, None)
        times, sizes = zip(*starts)
        table.remarks.append(
            f"a new replica: {statistics.median(times):.0f} ms to its first answer, "
            f"{statistics.median(sizes):.1f} MiB resident"
        )
    return table


def drive_both(bench: Bench, with_store: Server, alone: Server) -> dict[str, list[Round]]:
    """Hits and misses, with the store and without."""
    hit, miss = WORKLOADS["hit64"], WORKLOADS["miss"]
    hits = [bench.driver.lane(server, hit) for server in (with_store, alone)]
    misses = [bench.driver.lane(with_store, miss, STORE_MISS), bench.driver.lane(alone, miss, ALONE_MISS)]
    return {**bench.driver.interleave(hit.title, hits), **bench.driver.interleave(miss.title, misses)}


def start_once(bench: Bench, store: str) -> tuple[float, float]:
    """Milliseconds until a new replica answers, and its resident size."""
    began = time.perf_counter()
    server = bench.servers.spawn_gateway(GATEWAY, GatewayOptions(store=store))
    try:
        server.wait_until(answers_hits, pause=0)
        return (time.perf_counter() - began) * 1000, server.resident_mib()
    finally:
        server.stop()
