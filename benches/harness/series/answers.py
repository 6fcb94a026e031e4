"""A gateway with more questions, more routes, or larger answers."""

from __future__ import annotations

import contextlib
import json
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from ..asker import Asker
from ..client import TOKEN, free_ports, get_succeeds
from ..growth import SAMPLE, Column, Figures, Lab, Series, sampled, written
from ..process import Server
from ..servers import write_secret

HITS = 20_000

CONFIG = """\
server: {{ listen: "127.0.0.1:{port}", admin: "127.0.0.1:{admin}", hooks: "127.0.0.1:{hooks}", drain: 0s, deadline: 5m }}
log: {{ format: json, level: info }}
auth: {{ tokens: [ {{ name: argocd, file: "{token_file}", routes: ["*"] }} ] }}
cache: {{ memory: 2GiB, path: "{folder}/answers.redb", disk: 2GiB }}
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
    """How much a gateway is given."""

    questions: int = 1
    routes: int = 1
    sets: int = 1


def measure(lab: Lab, size: Size) -> Figures:
    folder = Path(tempfile.mkdtemp(dir=lab.directory))
    sets = json.dumps([{"name": f"app-{number:05}", "digest": f"{number:064x}"} for number in range(size.sets)])
    routes = "routes:\n" + "".join(ROUTE.format(number=number, sets=sets) for number in range(size.routes))
    questions = [f'{{"route":"r{number % size.routes}","n":"{number // size.routes:08}"}}' for number in range(size.questions)]
    with serving(lab, folder, routes) as (server, _):
        asker = Asker(server.port)
        before = server.cpu_time().own
        asker.ask(questions)
        # To write the file is a part of the price.
        file = written(folder / "answers.redb")
        fill = server.cpu_time().own - before
        # What is asked for the second time is recognised from then on.
        asker.ask(questions)
        known = random.Random(1).choices(questions, k=max(200, HITS // size.sets))
        hit = sampled(server, lambda: ignore(asker.ask(known)), len(known))
        resident = server.resident_mib()
    return {"first": fill * 1e3, "hit": hit * 1e6, "resident": resident, "file": file, "start": restart_ms(lab, folder, routes)}


def ignore(_: object) -> None:
    """A statement in the place of an expression."""


@contextlib.contextmanager
def serving(lab: Lab, folder: Path, routes: str) -> Iterator[tuple[Server, int]]:
    """A gateway with these routes, and its port for hooks."""
    port, admin, hooks = free_ports(3)
    token_file = write_secret(lab.directory / "token", TOKEN)
    config = CONFIG.format(port=port, admin=admin, hooks=hooks, token_file=token_file, folder=folder) + routes
    (folder / "gateway.yaml").write_text(config)
    argv = [str(lab.gateway), "serve", "--config", str(folder / "gateway.yaml")]
    server = Server("gateway", argv, port=port, core=lab.core, log=folder / "log", environment={})
    try:
        server.wait_until(lambda _: get_succeeds(admin, "/readyz"), pause=0.001)
        yield server, hooks
    finally:
        server.stop()


def restart_ms(lab: Lab, folder: Path, routes: str) -> float:
    """Milliseconds from a start with all the answers in the file until the gateway is ready."""
    times = []
    for _ in range(SAMPLE):
        began = time.monotonic()
        with serving(lab, folder, routes):
            times.append(time.monotonic() - began)
    return median(times) * 1e3


COLUMNS = {
    "first": Column("first answers", "{:,.1f} ms"),
    "hit": Column("a hit", "{:,.1f} µs", steady=True),
    "resident": Column("resident", "{:,.2f} MiB"),
    "file": Column("file", "{:,.2f} MiB"),
    "start": Column("start", "{:,.1f} ms"),
}

SERIES = {
    "questions": Series(
        "known questions", (1000, 10_000, 100_000), COLUMNS, lambda lab, count: measure(lab, Size(questions=count))
    ),
    "routes": Series(
        "routes, with 100 questions each", (1, 10, 100), COLUMNS, lambda lab, count: measure(lab, Size(100 * count, routes=count))
    ),
    "sets": Series(
        "parameter sets in each of 100 answers",
        (10, 100, 1000, 10_000),
        {**COLUMNS, "hit": Column("a hit", "{:,.1f} µs")},
        lambda lab, count: measure(lab, Size(100, sets=count)),
    ),
}
