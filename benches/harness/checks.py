"""Checks of what a server answers and logs, before and after it is measured."""

from __future__ import annotations

import json
import re
import time
from http import HTTPStatus
from typing import Any

from .client import ask
from .error import BenchError
from .process import Server
from .rounds import drive
from .servers import REFERENCE
from .workload import Workload

LOGGED_SECONDS = 1


def check_answer(server: Server, workload: Workload, expected: Any) -> None:
    answer = ask(server.port, workload)
    if answer.status != HTTPStatus.OK or answer.parameters() != expected:
        raise BenchError(
            f"{server.name}: {workload.title}: expected {json.dumps(expected)}, got\n{answer}\n{server.log_tail()}"
        )


def doubts_about_cache(server: Server, workload: Workload) -> list[str]:
    """A remark if the gateway reports a miss instead of a hit, or a hit instead of a miss."""
    if not is_gateway(server):
        return []
    cache_status = ask(server.port, workload).headers.get("cache-status", "")
    was_hit = re.search(r";\s*hit\b", cache_status) is not None
    if was_hit == workload.is_hit:
        return []
    wanted = "a hit" if workload.is_hit else "a miss"
    told = f"says '{cache_status}'" if cache_status else "has no Cache-Status header"
    return [f"doubt: {server.name}'s answer should be {wanted}, but it {told}"]


def doubts_about_log(server: Server, workload: Workload, core: int) -> list[str]:
    """A remark if the gateway did not write one log line per request, which wrk sends from `core`."""
    if not is_gateway(server) or not workload.is_hit:
        return []
    server.clear_log()
    driven = drive(server, workload, LOGGED_SECONDS, core)
    time.sleep(0.2)
    lines = server.log_lines() / driven.requests
    if abs(lines - 1) < 0.05:
        return []
    return [f"doubt: {server.name} wrote {lines:.2f} log lines per request instead of 1"]


def is_gateway(server: Server) -> bool:
    """Whether the server has the gateway's headers and log."""
    return not server.name.startswith(REFERENCE)
