"""How long a route takes while the expressions of others run until their deadline."""

from __future__ import annotations

import contextlib
import http.client
import json
import statistics
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from ..bench import Bench
from ..client import free_ports, json_headers
from ..error import BenchError
from ..process import Server
from ..progress import progress
from ..report import Table, against
from ..servers import running
from ..targets import TARGET_EVALUATIONS_MS, TARGET_LATE_MS
from ..workload import GETPARAMS

ALONE, BESIDE_HOSTILE = "ordinary, alone", "ordinary, beside the hostile"

# Seconds within which each call is answered.
DEADLINE = 2
# Each takes far longer than the deadline.
HOSTILE = [
    "lists.range(100000).filter(i, !lists.range(100000).exists(j, j == i + 100000))",
    "lists.range(100000).sortBy(i, lists.range(100000).filter(j, j < i).size())",
    "lists.range(100000).filter(i, ('a' + string(i)).matches('(a|a|a|a|a|a|a|a)*(b{500}){20}'))",
    "lists.range(100000).map(i, {'all': lists.range(100000)})",
]

CONFIG = """\
server: {{ listen: "127.0.0.1:{port}", admin: "127.0.0.1:{admin}", deadline: {deadline}s }}
auth: {{ tokens: [ {{ name: argocd, file: "{token_file}", routes: ["*"] }} ] }}
routes:
  - name: ordinary
    backend:
      pipeline:
        - fixed: {{ parameters: [{{ name: x-y }}] }}
        - select: "items.map(i, {{'name': i.name.replace('-', '_'), 'of': params.n}})"
"""

ROUTE = """\
  - name: {name}
    backend: {{ pipeline: [ {{ fixed: {{ parameters: [{{ a: b }}] }} }}, {{ select: {select} }} ] }}
"""


def measure(bench: Bench) -> Table:
    """An ordinary route alone, and while four other routes evaluate until their deadline."""
    port, text = config(bench.servers.token_file)
    file = bench.directory / "evaluations.yaml"
    file.write_text(text)
    seconds = bench.settings.seconds * bench.settings.rounds
    with running(bench.servers.spawn_configured("evaluations", file, port), answers_ordinary) as server:
        progress("evaluations: alone")
        times = {ALONE: ordinary(server, seconds)}
        progress("evaluations: beside hostile expressions")
        with Hostile(server) as hostile:
            times[BESIDE_HOSTILE] = ordinary(server, seconds)
        times["hostile"] = hostile.times()
    return tabulate(times)


def tabulate(times: Mapping[str, Times]) -> Table:
    title = f"a route beside four expressions that never end, deadline {DEADLINE} s"
    table = Table("evaluations", title, ["", "calls", "p50 ms", "p99 ms", "max ms"])
    for name, one in times.items():
        figures = (one.median, one.p99, one.longest)
        table.rows.append([name, str(one.calls), *(f"{figure:.1f}" for figure in figures)])
    p99 = times[BESIDE_HOSTILE].p99
    table.remarks.append(f"p99 beside the hostile: {against(p99, TARGET_EVALUATIONS_MS, ' ms')}")
    late = times["hostile"].longest - DEADLINE * 1000
    table.remarks.append(f"after the deadline: {against(late, TARGET_LATE_MS, ' ms')}")
    table.data = {name: asdict(one) for name, one in times.items()}
    return table


@dataclass(frozen=True)
class Times:
    """Milliseconds that the calls of a route took."""

    median: float
    p99: float
    longest: float
    calls: int

    @classmethod
    def of(cls, took: list[float]) -> Times:
        ordered = sorted(took)
        return cls(
            statistics.median(ordered), ordered[len(ordered) * 99 // 100], ordered[-1], len(ordered)
        )


def names() -> list[str]:
    return [f"hostile-{number}" for number in range(len(HOSTILE))]


def config(token_file: object) -> tuple[int, str]:
    """A gateway's configuration, and the port that it names."""
    port, admin = free_ports(2)
    text = CONFIG.format(port=port, admin=admin, deadline=DEADLINE, token_file=token_file)
    for name, expression in zip(names(), HOSTILE):
        text += ROUTE.format(name=name, select=json.dumps(expression))
    return port, text


def ordinary(server: Server, seconds: float) -> Times:
    """Calls the ordinary route every 5 ms."""
    took, connection = [], http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    with contextlib.closing(connection):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            elapsed, status = call(connection, "ordinary")
            if status != http.HTTPStatus.OK:
                raise BenchError(f"the ordinary route answered {status}\n{server.log_tail()}")
            took.append(elapsed)
            time.sleep(0.005)
    return Times.of(took)


def answers_ordinary(server: Server) -> bool:
    """Whether the ordinary route answers."""
    try:
        ordinary(server, 0.001)
    except OSError:
        return False
    return True


class Hostile:
    """Calls every hostile route again and again while it is entered; how long the calls took is in `took`."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.took: list[float] = []
        self.wrong: list[int] = []
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=self.go_on, args=(name,)) for name in names()]

    def go_on(self, name: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        with contextlib.closing(connection):
            while not self.is_over.is_set():
                elapsed, status = call(connection, name)
                self.took.append(elapsed)
                if status < http.HTTPStatus.BAD_REQUEST:
                    self.wrong.append(status)

    def __enter__(self) -> Hostile:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        for thread in self.threads:
            thread.join()

    def times(self) -> Times:
        if self.wrong or not self.took:
            raise BenchError(f"a hostile expression was answered {self.wrong}\n{self.server.log_tail()}")
        return Times.of(self.took)


def call(connection: http.client.HTTPConnection, route: str) -> tuple[float, int]:
    """Milliseconds and status of a call with a parameter that no call had before."""
    parameters = {"n": str(time.monotonic_ns())}
    body = json.dumps({"applicationSetName": "bench", "input": {"parameters": parameters}})
    headers = json_headers()
    began = time.perf_counter()
    connection.request("POST", f"/{route}{GETPARAMS}", body, headers)
    response = connection.getresponse()
    response.read()
    return (time.perf_counter() - began) * 1000, response.status
