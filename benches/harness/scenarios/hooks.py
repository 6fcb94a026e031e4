"""Events that a sender posts to the gateway's hooks, one by one or in a burst."""

from __future__ import annotations

import http.client
import json
import threading
import time
from dataclasses import dataclass
from typing import Any

from ..client import ask_route, json_headers
from ..error import BenchError
from ..process import Server

SECRET = "a-secret-of-the-sender"
EVENTS = 10_000
SENDERS = 8


def deliver(hooks: int, body: Any) -> None:
    """Posts one event to the port `hooks`."""
    connection = http.client.HTTPConnection("127.0.0.1", hooks, timeout=10)
    connection.request("POST", "/hooks/builds", json.dumps(body), json_headers(SECRET))
    status = connection.getresponse().status
    connection.close()
    if status != http.HTTPStatus.ACCEPTED:
        raise BenchError(f"the hook answered {status}")


@dataclass(frozen=True)
class Burst:
    """What a mad sender costs."""

    seconds: float
    taken: int
    refused: int
    p99_ms: float
    grown_mib: float


def burst(gateway: Server, hooks: int) -> Burst:
    """Sends 10,000 events within about ten seconds, by several senders, and measures the calls of others meanwhile."""
    ask_route(gateway.port, "items", "set-0", {"n": "0"})
    before, statuses = gateway.resident_mib(), []

    def send(first: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", hooks, timeout=30)
        headers = json_headers(SECRET)
        for number in range(first, EVENTS, SENDERS):
            connection.request("POST", "/hooks/builds", json.dumps({"n": f"unknown-{number}"}), headers)
            response = connection.getresponse()
            response.read()
            statuses.append(response.status)
        connection.close()

    senders = [threading.Thread(target=send, args=(first,)) for first in range(SENDERS)]
    began = time.monotonic()
    for sender in senders:
        sender.start()
    times = []
    while any(sender.is_alive() for sender in senders):
        asked = time.perf_counter()
        ask_route(gateway.port, "items", "set-0", {"n": "0"})
        times.append(time.perf_counter() - asked)
        time.sleep(0.01)
    seconds = time.monotonic() - began
    refused = sum(status == http.HTTPStatus.SERVICE_UNAVAILABLE for status in statuses)
    taken = sum(status == http.HTTPStatus.ACCEPTED for status in statuses)
    if taken + refused != EVENTS:
        raise BenchError(f"the hook answered {set(statuses)}")
    p99 = sorted(times)[len(times) * 99 // 100] * 1000
    return Burst(seconds, taken, refused, p99, gateway.resident_mib() - before)
