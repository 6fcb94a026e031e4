"""The gateway's router behind its own accept loop, and behind the least that serves it; in cleartext and by TLS."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

from ..bench import Bench
from ..checks import check_answer, doubts_about_cache, doubts_about_log
from ..client import answers
from ..comparison import add_ratio, tabulate
from ..error import BenchError
from ..gateway_config import GatewayOptions, TlsFiles
from ..report import Table
from ..servers import CANARY, GATEWAY, running
from ..targets import TARGET_EDGE_RATIO
from ..workload import EDGE_TLS, HIT_PARAMETERS, WORKLOADS

AXUM, BY_TLS, BARE_TLS = "axum::serve", "gateway by TLS", "bare TLS loop"


def measure(bench: Bench) -> Table:
    cleartext = WORKLOADS["edge"]
    servers, driver = bench.servers, bench.driver
    tls = GatewayOptions(tls=make_certificate(bench.directory))
    remarks: list[str] = []
    with contextlib.ExitStack() as stack:
        pairs = [
            (stack.enter_context(running(server, answers(workload))), workload)
            for server, workload in (
                (servers.spawn_gateway(GATEWAY), cleartext),
                (servers.spawn_bare(AXUM), cleartext),
                (servers.spawn_gateway(BY_TLS, tls), EDGE_TLS),
                (servers.spawn_bare(BARE_TLS, tls), EDGE_TLS),
            )
        ]
        canary = stack.enter_context(running(servers.spawn_named(CANARY)))
        for server, workload in pairs:
            check_answer(server, workload, HIT_PARAMETERS)
            remarks += doubts_about_cache(server, workload)
        lanes = [driver.lane(server, workload) for server, workload in pairs]
        rounds = driver.interleave(cleartext.title, [*lanes, driver.canary_lane(canary)])
        for server, workload in pairs:
            check_answer(server, workload, HIT_PARAMETERS)
            remarks += doubts_about_log(server, workload, bench.settings.client_core)
    table = tabulate("edge", cleartext.title, rounds, {AXUM: TARGET_EDGE_RATIO}, remarks)
    add_ratio(table, BY_TLS, BARE_TLS, rounds, TARGET_EDGE_RATIO)
    add_ratio(table, BY_TLS, GATEWAY, rounds, None)
    return table


def make_certificate(directory: Path) -> TlsFiles:
    """A new self-signed certificate."""
    files = TlsFiles(directory / "tls.crt", directory / "tls.key")
    argv = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
        *("-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
        *("-keyout", str(files.key), "-out", str(files.certificate)),
    ]
    made = subprocess.run(argv, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise BenchError(f"openssl made no certificate:\n{made.stderr}")
    return files
