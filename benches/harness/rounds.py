"""Rounds: a server is driven once by wrk, and its CPU time is read before and after."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .client import TOKEN, ask, seeds
from .error import BenchError
from .process import Server
from .workload import Workload

WRK_SCRIPTS = Path(__file__).resolve().parent.parent / "wrk"


@dataclass(frozen=True)
class Round:
    """One server driven once."""

    requests: int
    cpu_us: float
    requests_per_second: float
    p50_us: float
    p99_us: float
    resident_mib: float
    # HEADs to the registry per request, and its CPU time per HEAD.
    heads: float = 0.0
    head_us: float = 0.0


def drive(server: Server, workload: Workload, seconds: int, core: int) -> Round:
    """Runs wrk on `core`; fails unless every request was answered well."""
    before = server.cpu_time()
    summary = run_wrk(server, workload, seconds, core)
    used = server.cpu_time() - before
    requests = int(summary["requests"])
    if requests == 0 or any(summary["errors"].values()):
        raise BenchError(failure(server, workload, summary))
    return Round(
        requests=requests,
        cpu_us=used.own * 1e6 / requests,
        requests_per_second=requests * 1e6 / summary["duration_us"],
        p50_us=float(summary["p50_us"]),
        p99_us=float(summary["p99_us"]),
        resident_mib=server.resident_mib(),
    )


def run_wrk(server: Server, workload: Workload, seconds: int, core: int) -> dict[str, Any]:
    argv = [
        *("taskset", "--cpu-list", str(core), "wrk"),
        *("--threads", "1", "--connections", str(workload.connections)),
        *("--duration", f"{seconds}s", "--timeout", "10s"),
        *("--script", workload.script, f"http://127.0.0.1:{server.port}{workload.path}"),
    ]
    try:
        run = subprocess.run(
            argv,
            cwd=WRK_SCRIPTS,
            env={**os.environ, "BENCH_TOKEN": TOKEN, "BENCH_SEED": next(seeds)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds + 60,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{server.name}: wrk did not end: {error}") from error
    found = re.search(r"^BENCH (\{.*\})$", run.stdout, re.MULTILINE)
    if run.returncode != 0 or found is None:
        raise BenchError(f"{server.name}: wrk failed ({run.returncode}):\n{run.stdout}")
    summary: dict[str, Any] = json.loads(found[1])
    return summary


def failure(server: Server, workload: Workload, summary: Mapping[str, Any]) -> str:
    """What went wrong under load, with a response to look at: a bad one if one comes again."""
    sample = ""
    for _ in range(20):
        try:
            answer = ask(server.port, workload)
        except (OSError, http.client.HTTPException) as error:
            sample = f"none: {error!r}"
            break
        sample = str(answer)
        if answer.status != http.HTTPStatus.OK:
            break
    return (
        f"{server.name}: {workload.title}: {summary['requests']} requests, "
        f"errors {json.dumps(summary['errors'])}\n"
        f"--- a response asked for afterwards:\n{sample}\n{server.log_tail()}"
    )
