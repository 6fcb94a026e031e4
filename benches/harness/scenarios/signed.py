"""Look-ups whose signatures are proven, beside the same without a signature; and hits on both answers."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Mapping, Sequence

from .. import signing
from ..backing_services import run_registry
from ..bench import Bench
from ..checks import check_answer, count_registry_requests
from ..comparison import tabulate, whole_cpu_us
from ..gateway_config import SMALL_MEMORY, GatewayOptions
from ..report import Table
from ..rounds import Round
from ..servers import CANARY, GATEWAY, running
from ..targets import TARGET_SIGNED_US
from ..workload import LOOKED_UP_64, SIGNED_HIT, WORKLOADS
from .lookups import HIT_64, with_registry

UNSIGNED = "gateway, unsigned images"
SIGNED = "gateway, a hit on signed images"


def measure(bench: Bench) -> Table:
    signed, unsigned = WORKLOADS["signed"], WORKLOADS["lookups"]
    servers, driver = bench.servers, bench.driver
    with contextlib.ExitStack() as stack:
        asked, parameters = stack.enter_context(run_registry(servers, "signed"))
        public = signing.sign_images(bench.directory, asked.port, parameters[0])
        options = GatewayOptions(registry=asked.port, memory=SMALL_MEMORY, public_key=public)
        server = stack.enter_context(running(servers.spawn_gateway(GATEWAY, options)))
        canary = stack.enter_context(running(servers.spawn_named(CANARY)))
        for workload in (signed, unsigned, SIGNED_HIT, LOOKED_UP_64):
            check_answer(server, workload, parameters)
        remarks = [
            f"signed: {count_registry_requests(server, signed, asked)}",
            f"unsigned: {count_registry_requests(server, unsigned, asked)}",
        ]
        lanes = [
            driver.lane(server, signed),
            driver.lane(server, unsigned, UNSIGNED),
            driver.lane(server, SIGNED_HIT, SIGNED),
            driver.lane(server, LOOKED_UP_64, HIT_64),
        ]
        lanes = [with_registry(asked, lane) for lane in lanes]
        rounds = driver.interleave(signed.title, [*lanes, driver.canary_lane(canary)])
    remarks += [
        price_of_signatures("a look-up", rounds, GATEWAY, UNSIGNED),
        price_of_signatures("a hit", rounds, SIGNED, HIT_64),
    ]
    return tabulate("signed", signed.title, rounds, {}, remarks)


def price_of_signatures(kind: str, rounds: Mapping[str, Sequence[Round]], signed: str, unsigned: str) -> str:
    pairs = zip(rounds[signed], rounds[unsigned])
    more = [whole_cpu_us(one) - whole_cpu_us(other) for one, other in pairs]
    return (
        f"{kind} of signed images costs {statistics.median(more):+.2f} µs "
        f"({min(more):+.2f} to {max(more):+.2f}); the target is at most {TARGET_SIGNED_US} µs"
    )
