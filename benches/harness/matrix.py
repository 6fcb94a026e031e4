"""A matrix: Argo CD asks for its elements one after the other. How long that takes once all answers have expired."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from .error import BenchError
from .process import Server
from .push import Service, ask

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
            answer = ask(gateway.port, route, "set", {"n": str(number)})
            if answer != [{"n": str(number)}]:
                raise BenchError(f"{route} answered {answer} about {number}")
        seconds.append(time.monotonic() - began)
        requests.append(source.requests - before)
        time.sleep(EXPIRED_AFTER)
    return Reconciles(seconds, requests, source.most)
