"""Instructions and system calls per request: the difference between a long and a short run of the same server.

Both runs begin with the same questions, one after the other over one connection. The long run asks as many again. So the
start, the first questions and the end cancel out. Callgrind counts what the server's own process does, without the kernel.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .backing_services import BackingServices, backing_services
from .client import TOKEN, free_ports, listens
from .costs import Costs, Shares, per, read_callgrind, read_strace
from .error import BenchError
from .gateway_config import NOBODY, SMALL_MEMORY, GatewayOptions
from .process import Server
from .progress import progress
from .report import Table
from .servers import BARE_SERVER, GATEWAY, REFERENCE, Servers
from .settings import Settings
from .workload import BRANCHES, WORKLOADS

# Each is asked as the scenario of wrk asks.
COUNTED = {"hit": "hit64", "miss": "miss", "lookups": "lookups"}
TITLES = {
    "hit": "a cache hit",
    "miss": "a miss to a local upstream",
    "lookups": "two images looked up in docker-registry for each answer",
}
TOOLS = {"hit": (), "miss": (), "lookups": ("docker-registry", "skopeo")}
# What the gateway is compared with; else the reference.
COMPARED = {"lookups": BARE_SERVER}

# A server is many times slower under callgrind.
PATIENCE_SECONDS = 120.0
# Functions and system calls that are shown.
MOST_FUNCTIONS, MOST_CALLS = 80, 6


@dataclass(frozen=True)
class Counted:
    """What one request costs a server."""

    instructions: Shares
    # By name; empty without strace.
    calls: dict[str, float]


class Counting:
    def __init__(self, settings: Settings, directory: Path, requests: int, runs: int) -> None:
        self.servers = Servers(settings, directory)
        self.settings = settings
        self.directory = directory
        self.requests = requests
        self.runs = runs
        self.numbers = itertools.count()

    def run(self, name: str) -> tuple[Table, dict[str, Counted]]:
        counted: dict[str, Counted] = {}
        with backing_services(self.servers, COUNTED[name]) as services:
            for server in (GATEWAY, COMPARED.get(name, REFERENCE)):
                counted[server] = Counted(
                    self.instructions(name, server, services),
                    self.calls(name, server, services) if shutil.which("strace") else {},
                )
        return tabulate(name, counted), counted

    def instructions(self, name: str, server: str, services: BackingServices) -> Shares:
        def once(requests: int) -> Costs:
            written = self.directory / f"callgrind-{next(self.numbers)}"
            # Processes that the server forks write files of their own.
            tool = ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={written}.%p"]
            with self.running(server, services, tool) as running:
                progress(f"{name}: {server}: {requests} requests under callgrind")
                ask_all(running, name, services.parameters, requests)
                running.stop(PATIENCE_SECONDS)
            return read_callgrind(Path(f"{written}.{running.process.pid}"))

        def least(requests: int) -> Costs:
            # Timers only add, and more of them the slower the machine is.
            return min((once(requests) for _ in range(self.runs)), key=lambda costs: costs.total)

        return least(2 * self.requests).more_than(least(self.requests), self.requests)

    def calls(self, name: str, server: str, services: BackingServices) -> dict[str, float]:
        def once(requests: int) -> Counter[str]:
            written = self.directory / f"strace-{next(self.numbers)}"
            tool = ["strace", "--follow-forks", "--summary-only", f"--output={written}"]
            with self.running(server, services, tool) as running:
                progress(f"{name}: {server}: {requests} requests under strace")
                ask_all(running, name, services.parameters, requests)
                # strace blocks the signal, and ends with the server.
                pid = running.process.pid
                for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                    os.kill(int(child), signal.SIGTERM)
                running.process.wait(PATIENCE_SECONDS)
            return read_strace(written)

        short, long = once(self.requests), once(2 * self.requests)
        return per(long, short, self.requests)

    @contextlib.contextmanager
    def running(self, name: str, services: BackingServices, tool: Sequence[str]) -> Iterator[Server]:
        """The server, started by `tool`."""
        environment: dict[str, str] = {}
        if name == GATEWAY:
            options = GatewayOptions(upstream=services.upstream, registry=services.registry_port)
            if services.registry:
                options = replace(options, memory=SMALL_MEMORY)
            port, config = self.servers.write_config(name, options)
            argv = [str(self.settings.gateway), "serve", "--config", str(config)]
        else:
            (port,) = free_ports(1)
            example = "heads" if name == BARE_SERVER else "reference"
            argv = [str(self.settings.examples / example), f"127.0.0.1:{port}"]
            if services.registry:
                environment["HEADS_REGISTRY"] = f"127.0.0.1:{services.registry_port}"
            if services.upstream != NOBODY:
                environment["REFERENCE_UPSTREAM"] = f"http://127.0.0.1:{services.upstream}/v1/items"
        server = self.servers.spawn(name, [*tool, *argv], port, environment=environment)
        try:
            server.wait_until(listens, within=PATIENCE_SECONDS)
            yield server
        finally:
            server.stop(0)


def ask_all(server: Server, name: str, parameters: Any, requests: int) -> None:
    """Asks one question after the other, and compares each answer with the expected `parameters`."""
    expected = json.dumps({"output": {"parameters": parameters}}, separators=(",", ":")).encode()
    path = WORKLOADS[COUNTED[name]].path
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS) as connection:
        received = connection.makefile("rb")
        for number in range(requests):
            connection.sendall(request(server.port, path, question(name, number)))
            status, body = answer(received)
            if status != 200 or (body != expected and json.loads(body) != json.loads(expected)):
                raise BenchError(f"{server.name}: {name}: {status} {body[:2000]!r}\n{server.log_tail()}")


def question(name: str, number: int) -> dict[str, Any]:
    """The body that the script of wrk sends; with the same length each time."""
    if name == "hit":
        return {"applicationSetName": "hit", "input": {"parameters": {"branch": BRANCHES[0]}}}
    branch = BRANCHES[number % len(BRANCHES)] if name in COMPARED else BRANCHES[0]
    return {"applicationSetName": "bench", "input": {"parameters": {"branch": branch, "n": f"{number:020}"}}}


def request(port: int, path: str, asked: dict[str, Any]) -> bytes:
    body = json.dumps(asked, separators=(",", ":"))
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {TOKEN}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


def answer(received: Any) -> tuple[int, bytes]:
    status = received.readline().split()
    if len(status) < 2:
        raise BenchError("a server closed the connection")
    length = 0
    while line := received.readline().strip():
        key, _, value = line.partition(b":")
        if key.lower() == b"content-length":
            length = int(value)
    return int(status[1]), received.read(length)


def tabulate(name: str, counted: dict[str, Counted]) -> Table:
    table = Table(name, TITLES[name], ["", "instructions", "system calls"])
    for server, one in counted.items():
        calls = f"{sum(one.calls.values()):.2f}" if one.calls else "-"
        table.rows.append([server, f"{one.instructions.total:,.0f}", calls])
        most = sorted(one.calls.items(), key=lambda item: -item[1])[:MOST_CALLS]
        if most:
            listed = ", ".join(f"{call} {count:.2f}" for call, count in most if count >= 0.01)
            table.remarks.append(f"{server}: {listed}")
        table.data[server] = {"instructions": one.instructions.total, "system_calls": one.calls}
    ours, theirs = (one.instructions.total for one in counted.values())
    _, reference = counted
    table.remarks.insert(0, f"gateway / {reference}: {ours / theirs:.3f} of the instructions")
    table.data["ratio"] = ours / theirs
    # Valgrind's processor has no instructions for it.
    ours, theirs = (one.instructions.total - hashing(one) for one in counted.values())
    table.remarks.insert(1, f"gateway / {reference}: {ours / theirs:.3f} without SHA-256")
    table.data["ratio_without_sha256"] = ours / theirs
    return table


def hashing(counted: Counted) -> float:
    return sum(cost for function, cost in counted.instructions.own.items() if "sha256" in function)


def profile(name: str, counted: dict[str, Counted]) -> str:
    """The functions that cost most, by their own instructions and by those with everything that they call."""
    parts = []
    for server, one in counted.items():
        total = one.instructions.total
        for kind, costs in (("own", one.instructions.own), ("with callees", one.instructions.whole)):
            parts.append(f"{name}: {server}: {total:,.0f} instructions per request, {kind}")
            most = sorted(costs.items(), key=lambda item: -item[1])[:MOST_FUNCTIONS]
            parts += [f"{cost:10.1f} {cost / total:7.2%}  {function}" for function, cost in most]
            parts.append("")
    return "\n".join(parts)
