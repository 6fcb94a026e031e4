"""A matrix: Argo CD asks for its elements one after the other. How long that takes once all answers have expired."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..bench import Bench
from ..client import ask_route, free_ports, listens
from ..error import BenchError
from ..process import Server
from ..progress import progress
from ..report import Table, against
from ..servers import running
from ..service import Service
from ..targets import TARGET_MATRIX_S

ELEMENTS = 200
RECONCILES = 3
TAKES = 0.05
# The answers live two seconds, give or take a tenth.
EXPIRED_AFTER = 2.5

CONFIG = """\
server: {{ listen: "127.0.0.1:{port}", admin: "127.0.0.1:{admin}", drain: 0s }}
log: {{ format: json, level: warn }}
auth: {{ tokens: [ {{ name: argocd, file: "{token_file}", routes: ["*"] }} ] }}
routes:
  - name: ahead
    input: [ {{ name: n }} ]
    backend: &backend {{ http: {{ url: "http://127.0.0.1:{source}/{{{{ params.n }}}}" }} }}
    cache: {{ ttl: 2s, staleWhileRevalidate: 0s }}
  - name: in-turn
    input: [ {{ name: n }} ]
    backend: *backend
    cache: {{ ttl: 2s, staleWhileRevalidate: 0s, prefetch: false }}
"""


def measure(bench: Bench) -> Table:
    with Source() as source:
        port, admin = free_ports(2)
        values = {"port": port, "admin": admin, "source": source.server_port, "token_file": bench.servers.token_file}
        config = bench.directory / "matrix.yaml"
        config.write_text(CONFIG.format(**values))
        with running(bench.servers.spawn_configured("matrix", config, port), listens) as server:
            found = {}
            for route in ("ahead", "in-turn"):
                progress(f"matrix: {route}")
                found[route] = reconcile(server, source, route)
    return tabulate(found)


def tabulate(found: Mapping[str, Reconciles]) -> Table:
    columns = ["", "first, s", "later", "requests in each", "at once"]
    title = f"{ELEMENTS} elements whose source takes {TAKES * 1000:.0f} ms, one after the other"
    table = Table("matrix", title, columns)
    for name, route in (("gateway", "ahead"), ("gateway, `prefetch: false`", "in-turn")):
        first, *later = found[route].seconds
        requests = ", ".join(map(str, found[route].requests))
        at_once = str(found[route].most_at_once)
        table.rows.append([name, f"{first:.1f}", f"{statistics.median(later):.2f}", requests, at_once])
    slowest = max(found["ahead"].seconds[1:])
    table.remarks.append(f"the slowest of the later ones: {against(slowest, TARGET_MATRIX_S, ' s')}")
    table.data = {route: asdict(reconciles) for route, reconciles in found.items()}
    return table


class Source(Service):
    """A source that takes its time."""

    def __init__(self) -> None:
        self.requests = self.at_once = self.most = 0
        self.lock = threading.Lock()
        super().__init__()

    def answer(self, method: str, path: str, body: bytes) -> Any:
        with self.lock:
            self.requests += 1
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        time.sleep(TAKES)
        with self.lock:
            self.at_once -= 1
        return [{"n": path[1:]}]


@dataclass(frozen=True)
class Reconciles:
    """What the reconciles of one route took, in seconds, and how often each asked the source."""

    seconds: list[float]
    requests: list[int]
    most_at_once: int


def reconcile(gateway: Server, source: Source, route: str) -> Reconciles:
    """Asks for all elements one after the other: once at first, then again whenever all answers have expired."""
    seconds, requests = [], []
    source.most = 0
    for _ in range(1 + RECONCILES):
        before, began = source.requests, time.monotonic()
        for number in range(ELEMENTS):
            answer = ask_route(gateway.port, route, "set", {"n": str(number)})
            if answer != [{"n": str(number)}]:
                raise BenchError(f"{route} answered {answer} about {number}")
        seconds.append(time.monotonic() - began)
        requests.append(source.requests - before)
        time.sleep(EXPIRED_AFTER)
    return Reconciles(seconds, requests, source.most)
