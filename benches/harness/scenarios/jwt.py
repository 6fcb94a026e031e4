"""The same gateway and answer, by a JWT that was verified before and by a static token."""

from __future__ import annotations

import contextlib

from ..bench import Bench
from ..checks import check_answer, doubts_about_cache
from ..comparison import tabulate
from ..gateway_config import GatewayOptions
from ..report import Table
from ..servers import CANARY, GATEWAY, running
from ..targets import TARGET_JWT_RATIO
from ..workload import HIT_PARAMETERS, WORKLOADS

STATIC = "gateway, by a static token"


def measure(bench: Bench) -> Table:
    by_jwt, static = WORKLOADS["jwt"], WORKLOADS["hit64"]
    servers, driver = bench.servers, bench.driver
    remarks: list[str] = []
    with contextlib.ExitStack() as stack:
        options = GatewayOptions(jwt_secret_file=servers.jwt_secret_file)
        gateway = stack.enter_context(running(servers.spawn_gateway(GATEWAY, options)))
        canary = stack.enter_context(running(servers.spawn_named(CANARY)))
        for workload in (by_jwt, static):
            check_answer(gateway, workload, HIT_PARAMETERS)
            remarks += doubts_about_cache(gateway, workload)
        lanes = [driver.lane(gateway, by_jwt), driver.lane(gateway, static, STATIC)]
        rounds = driver.interleave(by_jwt.title, [*lanes, driver.canary_lane(canary)])
        check_answer(gateway, by_jwt, HIT_PARAMETERS)
    return tabulate("jwt", by_jwt.title, rounds, {STATIC: TARGET_JWT_RATIO}, remarks)
