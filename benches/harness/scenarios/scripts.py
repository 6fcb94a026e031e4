"""Each answer runs a program: contained, and bare; and with much memory held by the gateway.

A machine's speed at starting programs changes from second to second, so that the turns are short.
"""

from __future__ import annotations

import contextlib
import json
import statistics
from collections.abc import Mapping, Sequence

from ..bench import Bench
from ..checks import check_answer
from ..client import answers_get, fill
from ..gateway_config import GatewayOptions
from ..process import Server
from ..report import Table, against, at_least, latency
from ..rounds import Round
from ..script_commands import SCRIPTS, WORKER, script_workload
from ..servers import BARE_SERVER, GATEWAY, running
from ..targets import TARGET_SCRIPT_THROUGHPUT, TARGET_SCRIPT_TIME, TARGET_WORKER_TIME
from ..workload import SCRIPT_PARAMETERS, WORKLOADS, Workload

HOLDER = "gateway that holds much"
# The memory that it holds, in answers of so many bytes.
HELD_MIB = 1024
HELD_BYTES = 200_000
# The script that a worker is compared with.
ONE_SHOT = "script-python"

Rounds = Mapping[str, Sequence[Round]]


def measure(bench: Bench) -> Table:
    header = ["", "alone", "bare", "ratio", "8 at once", "bare", "ratio"]
    table = Table("scripts", WORKLOADS["scripts"].title, header)
    servers = bench.servers
    options = GatewayOptions(memory="2GiB", held_bytes=HELD_BYTES)
    environment = {"SPAWN_COMMANDS": json.dumps(servers.script_commands)}
    with contextlib.ExitStack() as stack:
        gateway = stack.enter_context(running(servers.spawn_gateway(GATEWAY)))
        holder = stack.enter_context(running(servers.spawn_gateway(HOLDER, options)))
        bare = stack.enter_context(
            running(servers.spawn_example(BARE_SERVER, "spawn", environment=environment), answers_get("/"))
        )
        fill(holder.port, HELD_MIB * 1024 * 1024 // HELD_BYTES)
        held_mib = holder.resident_mib()
        for route in SCRIPTS:
            one, eight = script_workload(route, 1), script_workload(route, 8)
            check_answers((gateway, bare), one)
            alone = drive_by_second(bench, one, (gateway, bare, holder), 1)
            # The load of a machine varies more in a second than the time of one program.
            at_once = drive_by_second(bench, eight, (gateway, bare), 2)
            add_script(table, route, alone, at_once, held_mib)
        worker = script_workload(WORKER, 1)
        check_answers((gateway, bare), worker)
        add_worker(table, drive_by_second(bench, worker, (gateway, bare), 2))
    return table


def check_answers(servers: Sequence[Server], workload: Workload) -> None:
    for server in servers:
        check_answer(server, workload, SCRIPT_PARAMETERS)


def drive_by_second(bench: Bench, workload: Workload, servers: Sequence[Server], times: int) -> Rounds:
    lanes = [bench.driver.lane(server, workload) for server in servers]
    return bench.driver.interleave(workload.title, lanes, by_second=True, times=times)


def add_script(table: Table, route: str, alone: Rounds, eight: Rounds, held_mib: float) -> None:
    """A line with the time of one program alone and the throughput of eight at once, and their ratios."""
    times = {name: [one.p50_us for one in driven] for name, driven in alone.items()}
    rates = {name: [one.requests_per_second for one in driven] for name, driven in eight.items()}
    time, bare_time = (statistics.median(times[name]) for name in (GATEWAY, BARE_SERVER))
    rate, bare_rate = (statistics.median(rates[name]) for name in (GATEWAY, BARE_SERVER))
    time_ratio, time_text = over(times[GATEWAY], times[BARE_SERVER])
    rate_ratio, rate_text = over(rates[GATEWAY], rates[BARE_SERVER])
    held_ratio, held_text = over(times[HOLDER], times[GATEWAY])
    in_time = [latency(time), latency(bare_time), time_text]
    table.rows.append([route, *in_time, f"{rate:.0f}/s", f"{bare_rate:.0f}/s", rate_text])
    table.remarks += [
        f"{route}: time alone / bare: {against(time_ratio, TARGET_SCRIPT_TIME)}; "
        f"throughput at 8 / bare: {at_least(rate_ratio, TARGET_SCRIPT_THROUGHPUT)}",
        f"{route}: alone with {held_mib:.0f} MiB held / with little: {held_text}",
    ]
    table.data[route] = {
        "time_us": time,
        "time_ratio": time_ratio,
        "throughput": rate,
        "throughput_ratio": rate_ratio,
        "held_mib": held_mib,
        "held_ratio": held_ratio,
    }


def add_worker(table: Table, rounds: Rounds) -> None:
    """A remark on a worker's time beside a bare pipe's, and beside that of a program that is started each time."""
    times = {name: [one.p50_us for one in driven] for name, driven in rounds.items()}
    time, bare_time = (statistics.median(times[name]) for name in (GATEWAY, BARE_SERVER))
    ratio, ratio_text = over(times[GATEWAY], times[BARE_SERVER])
    cheaper = table.data[ONE_SHOT]["time_us"] / time
    table.remarks.append(
        f"worker (python): {latency(time)} beside {latency(bare_time)} over a bare pipe, {ratio_text}, "
        f"{against(ratio, TARGET_WORKER_TIME)}; {ONE_SHOT} takes {cheaper:.0f} times as long"
    )
    table.data["worker"] = {"time_us": time, "time_ratio": ratio, "one_shot_ratio": cheaper}


def over(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, str]:
    """The median ratio, and its text with the lowest and highest."""
    ratios = [our / their for our, their in zip(ours, theirs)]
    median = statistics.median(ratios)
    return median, f"{median:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
