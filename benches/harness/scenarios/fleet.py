"""Several replicas on one store: how often they run the same questions, and what they ask of their source."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import re
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..bench import Bench
from ..client import free_ports, json_headers
from ..error import BenchError
from ..process import Server
from ..progress import progress
from ..servers import running
from ..workload import GETPARAMS

QUESTIONS = 300
CONNECTIONS = 64

CONFIG = """\
server: {{ listen: "127.0.0.1:{port}", admin: "127.0.0.1:{admin}", drain: 0s }}
log: {{ format: json, level: warn }}
auth: {{ tokens: [ {{ name: argocd, file: "{token_file}", routes: ["*"] }} ] }}
cache: {{ shared: {{ url: "{store}", prefix: "fleet-{count}" }} }}
routes:
  - name: items
    match: {{}}
    cache: {{ ttl: 2s }}
    backend:
      http:
        url: "http://127.0.0.1:{upstream}/v1/items?n={{{{ params.n }}}}"
        parameters: "body.items.map(t, {{'name': t.name, 'server': t.cluster}})"
"""


@dataclass(frozen=True)
class FleetCounts:
    """What a number of replicas did within some seconds."""

    calls: int
    runs: int
    requests: int


def run_fleet(bench: Bench, store: str, upstream: int, count: int, seconds: int) -> FleetCounts:
    """Starts `count` replicas on the store, and calls them for so many seconds."""
    with contextlib.ExitStack() as stack:
        servers = []
        for number in range(count):
            port, admin, text = config(bench.servers.token_file, store, upstream, count)
            file = bench.directory / f"fleet-{count}-{number}.yaml"
            file.write_text(text)
            server = bench.servers.spawn_configured(f"fleet-{count}-{number}", file, port)
            stack.enter_context(running(server, is_in_contact))
            servers.append((server, admin))
        progress(f"replicas: {count} at once")
        return call_all(servers, seconds)


def config(token_file: object, store: str, upstream: int, count: int) -> tuple[int, int, str]:
    """The configuration of one of `count` replicas, and the ports that it names."""
    port, admin = free_ports(2)
    values = {"port": port, "admin": admin, "token_file": token_file, "store": store, "upstream": upstream}
    return port, admin, CONFIG.format(count=count, **values)


def call_all(replicas: Sequence[tuple[Server, int]], seconds: float) -> FleetCounts:
    """Calls all replicas in turn about all questions, on many connections."""
    for server, _ in replicas:
        server.wait_until(is_in_contact)
    admins = [admin for _, admin in replicas]
    ports = itertools.cycle([server.port for server, _ in replicas])
    callers = [Caller(next(ports), first) for first in range(CONNECTIONS)]
    before = counts(admins)
    began = time.monotonic()
    for caller in callers:
        caller.start()
    time.sleep(seconds)
    for caller in callers:
        caller.is_over.set()
    for caller in callers:
        caller.join()
    wrong = [status for caller in callers for status in caller.wrong]
    if wrong:
        raise BenchError(f"a replica answered {wrong[0]}\n{replicas[0][0].log_tail()}")
    scale = seconds / (time.monotonic() - began)
    runs, requests = (round((after - first) * scale) for after, first in zip(counts(admins), before))
    return FleetCounts(sum(caller.calls for caller in callers), runs, requests)


class Caller(threading.Thread):
    """Asks one replica about all questions, one after the other."""

    def __init__(self, port: int, first: int) -> None:
        super().__init__(daemon=True)
        self.port, self.calls = port, 0
        self.wrong: list[int] = []
        self.numbers: Iterator[int] = itertools.count(first * QUESTIONS // CONNECTIONS)
        self.is_over = threading.Event()

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        while not self.is_over.is_set():
            status = call(connection, next(self.numbers) % QUESTIONS)
            self.calls += 1
            if status != http.HTTPStatus.OK:
                self.wrong.append(status)
                return
        connection.close()


def call(connection: http.client.HTTPConnection, number: int) -> int:
    body = json.dumps({"applicationSetName": "bench", "input": {"parameters": {"n": str(number)}}})
    headers = json_headers()
    connection.request("POST", GETPARAMS, body, headers)
    response = connection.getresponse()
    response.read()
    return response.status


def is_in_contact(server: Server) -> bool:
    """Whether a replica answers: it is in contact with the store."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        return call(connection, QUESTIONS) == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


def counts(admins: Sequence[int]) -> tuple[int, int]:
    """Runs of the backend, and requests to the source, of all replicas."""
    runs = requests = 0
    for admin in admins:
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics") as response:
            text = response.read().decode()
        runs += total(text, "appset_gateway_backend_duration_seconds_count")
        requests += total(text, "appset_gateway_outbound_requests_total")
    return runs, requests


def total(text: str, name: str) -> int:
    return sum(int(float(value)) for value in re.findall(rf"^{name}\{{[^}}]*\}} (\S+)$", text, re.MULTILINE))
