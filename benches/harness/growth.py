"""What one more question, route or parameter set costs: time, memory and space in the file, at several sizes."""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from .client import TOKEN, free_ports, get_succeeds
from .error import BenchError
from .process import Server
from .progress import progress
from .report import Table
from .workload import GETPARAMS

# The price of one more may rise so much from the first step between two sizes to the last.
TARGET = 1.2
# How many requests are sent before their answers are read.
BATCH = 32
HITS = 20_000
# The gateway writes its file behind the answers. It has written all when nothing was added for so long.
QUIET_SECONDS, MOST_SECONDS = 2.0, 60.0
SAMPLE = 5

CONFIG = """\
server: {{ listen: "127.0.0.1:{port}", admin: "127.0.0.1:{admin}", drain: 0s }}
log: {{ format: json, level: info }}
auth: {{ tokens: [ {{ name: argocd, file: "{token_file}", routes: ["*"] }} ] }}
cache: {{ memory: 2GiB, path: "{folder}/answers.redb", disk: 2GiB }}
routes:
"""
ROUTE = """\
  - name: r{number}
    match: {{ parameters: {{ route: r{number} }} }}
    backend: {{ fixed: {{ parameters: {sets} }} }}
    echo: [n]
    cache: {{ ttl: 1h }}
"""


@dataclass(frozen=True)
class Size:
    """How much a gateway is given, and by what its figures are divided."""

    questions: int = 1
    routes: int = 1
    sets: int = 1


# The sizes of each series.
SERIES: dict[str, tuple[str, list[Size]]] = {
    "questions": ("known questions", [Size(questions=count) for count in (1000, 10_000, 100_000)]),
    "routes": ("routes, with 100 questions each", [Size(100 * count, routes=count) for count in (1, 10, 100)]),
    "sets": ("parameter sets in each of 100 answers", [Size(100, sets=count) for count in (10, 100, 1000, 10_000)]),
}


@dataclass(frozen=True)
class Figures:
    """What one gateway of a size took. All times are CPU time of its process, but for `ready_ms`."""

    fill_us: float
    hit_us: float
    resident_kib: float
    file_kib: float
    ready_ms: float


class Asker:
    """Asks over one connection, a batch at a time, so that the client is not what takes long."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.head = (
            f"POST {GETPARAMS} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
        )
        self.received = b""

    def ask(self, questions: Iterable[tuple[int, int]]) -> None:
        """Asks each question: a route's number, and the question's own."""
        batch: list[bytes] = []
        for route, number in questions:
            parameters = f'{{"route":"r{route}","n":"{number:08}"}}'
            body = f'{{"applicationSetName":"scale","input":{{"parameters":{parameters}}}}}'
            batch.append(f"{self.head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            if len(batch) == BATCH:
                self.exchange(batch)
                batch = []
        self.exchange(batch)

    def exchange(self, batch: list[bytes]) -> None:
        self.socket.sendall(b"".join(batch))
        for _ in batch:
            self.take_answer()

    def take_answer(self) -> None:
        while b"\r\n\r\n" not in self.received:
            self.receive()
        head, _, rest = self.received.partition(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
        if not head.startswith(b"HTTP/1.1 200 ") or length is None:
            raise BenchError(f"the gateway answered {self.received[:1000].decode(errors='replace')}")
        self.received = rest
        while len(self.received) < int(length[1]):
            self.receive()
        self.received = self.received[int(length[1]) :]

    def receive(self) -> None:
        more = self.socket.recv(1 << 20)
        if not more:
            raise BenchError("the gateway closed the connection")
        self.received += more


class Growth:
    """Starts a gateway for each size."""

    def __init__(self, gateway: Path, directory: Path, core: int) -> None:
        self.gateway, self.directory, self.core = gateway, directory, core
        self.token_file = directory / "token"
        self.token_file.write_text(TOKEN)

    def table(self, name: str) -> Table:
        title, sizes = SERIES[name]
        table = Table(name, title, ["", "a first answer", "a hit", "resident", "file", "start"])
        measured = []
        for size in sizes:
            progress(f"{name}: {units(name, size):,}")
            measured.append((units(name, size), self.measure(size)))
        for count, figures in measured:
            table.rows.append([f"{count:,}", *cells(figures)])
        for row, price in prices(name, measured).items():
            table.data[row] = price
            table.remarks.append(remark(row, price))
        return table

    def measure(self, size: Size) -> Figures:
        folder = Path(tempfile.mkdtemp(dir=self.directory))
        questions = [(number % size.routes, number // size.routes) for number in range(size.questions)]
        with self.serving(folder, size) as server:
            asker = Asker(server.port)
            before = server.cpu_time().own
            asker.ask(questions)
            # To write the file is a part of the price.
            file_kib = written(folder / "answers.redb")
            fill = server.cpu_time().own - before
            # What is asked for the second time is recognised from then on.
            asker.ask(questions)
            hits = max(200, HITS // size.sets)
            known = random.Random(1).choices(questions, k=hits)
            rounds = []
            for _ in range(SAMPLE):
                before = server.cpu_time().own
                asker.ask(known)
                rounds.append(server.cpu_time().own - before)
            hit = median(rounds)
            resident = server.resident_mib()
        ready = [self.restart(folder, size) for _ in range(SAMPLE)]
        return Figures(
            fill_us=fill * 1e6,
            hit_us=hit * 1e6 / hits,
            resident_kib=resident * 1024,
            file_kib=file_kib,
            ready_ms=median(ready) * 1000,
        )

    def restart(self, folder: Path, size: Size) -> float:
        """Seconds from a start with all the answers in the file until the gateway is ready."""
        began = time.monotonic()
        with self.serving(folder, size):
            return time.monotonic() - began

    @contextlib.contextmanager
    def serving(self, folder: Path, size: Size) -> Iterator[Server]:
        port, admin = free_ports(2)
        config = CONFIG.format(port=port, admin=admin, token_file=self.token_file, folder=folder)
        sets = json.dumps([{"name": f"app-{number:05}", "digest": f"{number:064x}"} for number in range(size.sets)])
        config += "".join(ROUTE.format(number=number, sets=sets) for number in range(size.routes))
        (folder / "gateway.yaml").write_text(config)
        argv = [str(self.gateway), "serve", "--config", str(folder / "gateway.yaml")]
        server = Server("gateway", argv, port=port, core=self.core, log=folder / "log", environment={})
        try:
            server.wait_until(lambda _: get_succeeds(admin, "/readyz"), pause=0.001)
            yield server
        finally:
            server.stop()


def written(file: Path) -> float:
    """The room that the file takes on the disk, in KiB, once the gateway has written everything."""
    last, since, began = -1, time.monotonic(), time.monotonic()
    while time.monotonic() - since < QUIET_SECONDS and time.monotonic() - began < MOST_SECONDS:
        time.sleep(0.1)
        blocks = file.stat().st_blocks
        if blocks != last:
            last, since = blocks, time.monotonic()
    return last / 2


def units(name: str, size: Size) -> int:
    return {"questions": size.questions, "routes": size.routes, "sets": size.sets}[name]


def cells(figures: Figures) -> list[str]:
    return [
        f"{figures.fill_us / 1000:,.1f} ms in all",
        f"{figures.hit_us:,.1f} µs",
        f"{figures.resident_kib / 1024:,.1f} MiB",
        f"{figures.file_kib / 1024:,.1f} MiB",
        f"{figures.ready_ms:,.0f} ms",
    ]


def prices(name: str, measured: list[tuple[int, Figures]]) -> dict[str, dict[str, object]]:
    """The price of one more of each kind, from size to size; a hit's own price is not per unit, but for the sets in it."""
    rows = {
        "a first answer, µs": [figures.fill_us for _, figures in measured],
        "resident, KiB": [figures.resident_kib for _, figures in measured],
        "file, KiB": [figures.file_kib for _, figures in measured],
        "start, µs": [figures.ready_ms * 1000 for _, figures in measured],
    }
    counts = [count for count, _ in measured]
    found: dict[str, dict[str, object]] = {}
    for row, values in rows.items():
        steps = zip(zip(counts, values), zip(counts[1:], values[1:]))
        found[row] = {"at": counts[1:], "each": [(b - a) / (m - n) for (n, a), (m, b) in steps]}
    hits = [figures.hit_us for _, figures in measured]
    if name == "sets":
        steps = zip(zip(counts, hits), zip(counts[1:], hits[1:]))
        found["a hit, µs"] = {"at": counts[1:], "each": [(b - a) / (m - n) for (n, a), (m, b) in steps]}
    else:
        found["a hit, µs"] = {"at": counts, "each": hits}
    return found


def remark(row: str, price: dict[str, object]) -> str:
    each = [float(value) for value in price["each"]]  # type: ignore[attr-defined]
    at = price["at"]
    text = ", ".join(f"{value:,.3g} at {count:,}" for value, count in zip(each, at))  # type: ignore[call-overload]
    grows = each[-1] / each[0] if each[0] > 0 else float("inf")
    verdict = "flat" if grows <= TARGET else "NOT flat"
    return f"one more, {row}: {text}: {verdict} (last / first {grows:.2f})"
