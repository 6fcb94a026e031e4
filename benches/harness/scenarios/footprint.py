"""The gateway as a process: how fast it starts, how much memory it takes, and how large its executable is."""

from __future__ import annotations

import statistics
import time

from ..bench import Bench
from ..client import answers_hits, fill
from ..gateway_config import GatewayOptions
from ..progress import progress
from ..report import Table, against
from ..rounds import drive
from ..servers import GATEWAY, REFERENCE, running
from ..targets import TARGET_BINARY_MIB, TARGET_HELD_MIB, TARGET_RESIDENT_MIB, TARGET_START_MS
from ..workload import WORKLOADS

MIB = 1024 * 1024
STARTS = 20
# A gateway that keeps answers, and how many of which size.
KEEPER = "gateway that keeps answers"
KEPT, KEPT_BYTES = 10_000, 4096


def measure_start(bench: Bench) -> Table:
    """From spawning the process to the first 200, connecting in a tight loop."""
    times: dict[str, list[float]] = {name: [] for name in names_of_servers(bench)}
    for number in range(STARTS + 1):
        for name, taken in times.items():
            progress(f"start {number} of {STARTS}: {name}")
            milliseconds = start_once(bench, name)
            if number > 0:  # the first start reads the binary from the disk
                taken.append(milliseconds)
    title = f"from spawn to the first answer, {STARTS} times"
    table = Table("start", title, ["", "median ms", "min", "max"])
    for name, taken in times.items():
        figures = (statistics.median(taken), min(taken), max(taken))
        table.rows.append([name, *(f"{figure:.1f}" for figure in figures)])
    median = statistics.median(times[GATEWAY])
    table.remarks.append(f"gateway: {against(median, TARGET_START_MS, ' ms')}")
    table.data = {"milliseconds": times}
    return table


def start_once(bench: Bench, name: str) -> float:
    """Milliseconds until the server's first answer."""
    began = time.perf_counter()
    server = bench.servers.spawn_named(name)
    try:
        server.wait_until(answers_hits, pause=0)
        return (time.perf_counter() - began) * 1000
    finally:
        server.stop(patience=0)


def measure_resident(bench: Bench) -> Table:
    """VmRSS of a fresh process after its first answer, and after a run of hits."""
    seconds = bench.settings.seconds
    header = ["", "after start, MiB", f"after {seconds} s of hits, MiB"]
    table = Table("resident", "memory", header)
    for name in names_of_servers(bench):
        progress(f"resident: {name}")
        with running(bench.servers.spawn_named(name)) as server:
            time.sleep(0.5)
            after_start = server.resident_mib()
            hits = drive(server, WORKLOADS["hit64"], seconds, bench.settings.client_core)
        table.rows.append([name, f"{after_start:.1f}", f"{hits.resident_mib:.1f}"])
        table.data[name] = {"start_mib": after_start, "hits_mib": hits.resident_mib}
    verdict = against(table.data[GATEWAY]["start_mib"], TARGET_RESIDENT_MIB, " MiB")
    table.remarks.append(f"gateway after start: {verdict}")
    with running(bench.servers.spawn_gateway(KEEPER, GatewayOptions(held_bytes=KEPT_BYTES))) as server:
        fill(server.port, KEPT)
        kept = server.resident_mib()
    table.data[KEEPER] = {"kept_mib": kept}
    table.remarks.append(f"with {KEPT:,} answers of 4 KiB: {kept:.1f} MiB, {against(kept, TARGET_HELD_MIB, ' MiB')}")
    return table


def names_of_servers(bench: Bench) -> list[str]:
    return [*bench.servers.gateway_names(), REFERENCE]


def measure_binary(bench: Bench) -> Table:
    table = Table("binary", "size of the executable", ["", "MiB"])
    for name in bench.servers.gateway_names():
        size = bench.servers.binary(name).stat().st_size / MIB
        table.rows.append([name, f"{size:.1f}"])
        table.data[name] = {"mib": size}
    verdict = against(table.data[GATEWAY]["mib"], TARGET_BINARY_MIB, " MiB")
    table.remarks.append(f"gateway: {verdict}")
    return table
