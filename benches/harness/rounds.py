"""Rounds: a server is driven once, by wrk or by itself, and its CPU time is read before and after."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from .client import ask, seeds, token_of
from .error import BenchError
from .process import Server
from .workload import Workload

WRK_SCRIPTS = Path(__file__).resolve().parent.parent / "wrk"


@dataclass(frozen=True)
class Round:
    """One server driven once."""

    requests: int
    cpu_us: float
    children_us: float
    requests_per_second: float
    p50_us: float
    p99_us: float
    resident_mib: float
    # HEADs to the registry per request, and its CPU time per HEAD.
    heads: float = 0.0
    head_us: float = 0.0


def drive(server: Server, workload: Workload, seconds: int, core: int) -> Round:
    """Runs wrk on `core`; fails unless every request was answered well."""

    def run() -> dict[str, Any]:
        summary = run_wrk(server, workload, seconds, core)
        if summary["requests"] == 0 or any(summary["errors"].values()):
            raise BenchError(failure(server, workload, summary))
        return summary

    return measure(server, run)


def drive_loop(server: Server, tasks: int, seconds: int) -> Round:
    """Has heads.rs look up pair after pair by itself."""

    def run() -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=seconds + 60)
        try:
            connection.request("POST", f"/loop?seconds={seconds}&tasks={tasks}")
            response = connection.getresponse()
            body = response.read()
            if response.status != http.HTTPStatus.OK:
                raise BenchError(f"{server.name} answered {response.status}\n{server.log_tail()}")
            summary: dict[str, Any] = json.loads(body)
            return summary
        finally:
            connection.close()

    return measure(server, run)


def measure(server: Server, run: Callable[[], dict[str, Any]]) -> Round:
    before = server.cpu_time()
    summary = run()
    used = server.cpu_time() - before
    requests = int(summary["requests"])
    return Round(
        requests=requests,
        cpu_us=used.own * 1e6 / requests,
        children_us=used.children * 1e6 / requests,
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
            env={**os.environ, "BENCH_TOKEN": token_of(workload), "BENCH_SEED": next(seeds)},
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
