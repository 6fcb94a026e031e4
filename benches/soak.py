#!/usr/bin/env python3
"""Asks the gateway many different questions in rounds, and watches its memory.

Answers are about 4 KiB and live for seconds, so they are renewed all the time, in memory and on
disk. Each round replaces a part of the questions by new ones. One of fifty answers of the upstream
is an error. Every answer is checked: it belongs to the question, is complete, and is no older than
the previous answer.

Fails if an answer is wrong, if the resident size exceeds its target, or if the size grows: its
median over the last third of the time is more than 5 % above the median over the middle third.

Needs no tools but Python; see README.md beside this file.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.dont_write_bytecode = True

from harness.client import TOKEN, answers_get, free_ports  # noqa: E402
from harness.command import exit_code  # noqa: E402
from harness.error import BenchError  # noqa: E402
from harness.process import Server  # noqa: E402
from harness.progress import progress  # noqa: E402
from harness.report import Table, against  # noqa: E402

TARGET_RESIDENT_MIB = 256.0
TARGET_GROWTH = 1.05

ITEMS = "abcdefghij"
CLIENTS = 4
SAMPLE_SECONDS = 2.0
ROWS = 15
# The share of the questions that is new in each round.
REPLACED = 0.1
MIB = 1024 * 1024

CONFIG = """\
server: {{ listen: "127.0.0.1:{port}", admin: "127.0.0.1:{admin}", deadline: 25s, drain: 0s }}
log: {{ format: json, level: info }}
auth: {{ tokens: [ {{ name: argocd, file: "{token_file}", routes: ["*"] }} ] }}
cache: {{ path: "{cache}", disk: 96MiB }}
routes:
  - name: soak
    match: {{}}
    backend:
      http:
        url: "http://127.0.0.1:{upstream}/v1/items/{{{{ params.n }}}}"
        parameters: "body.items"
        timeout: 10s
    cache: {{ ttl: 5s, staleWhileRevalidate: 5s, staleIfError: 24h }}
"""


@dataclass
class Counts:
    """What the clients saw."""

    answers: int = 0
    unknown: int = 0
    hits: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Sample:
    seconds: float
    resident_mib: float
    disk_mib: float
    answers: int
    hits: int
    unknown: int


class Asker(threading.Thread):
    """Asks its share of the questions, one after the other, on one connection."""

    def __init__(self, port: int, first: int, keys: int, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.keys = [first + CLIENTS * number for number in range(keys)]
        self.next = first + CLIENTS * keys
        self.over = over
        self.turns: dict[int, int] = {}
        self.counts = Counts()

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            while not self.over.is_set():
                for key in self.keys:
                    if self.over.is_set():
                        return
                    self.ask(connection, key)
                self.replace_some()
        except (OSError, http.client.HTTPException) as error:
            self.counts.wrong.append(f"the connection failed: {error!r}")
        finally:
            connection.close()

    def replace_some(self) -> None:
        leaving = max(1, int(len(self.keys) * REPLACED))
        for key in self.keys[:leaving]:
            self.turns.pop(key, None)
        new = range(self.next, self.next + CLIENTS * leaving, CLIENTS)
        self.keys = [*self.keys[leaving:], *new]
        self.next += CLIENTS * leaving

    def ask(self, connection: http.client.HTTPConnection, key: int) -> None:
        body = json.dumps(
            {"applicationSetName": "soak", "input": {"parameters": {"n": str(key)}}}
        )
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
        connection.request("POST", "/api/v1/getparams.execute", body, headers)
        response = connection.getresponse()
        received = response.read()
        if response.status == http.HTTPStatus.OK:
            self.counts.answers += 1
            self.counts.hits += "; hit" in response.getheader("cache-status", "")
            wrong = self.what_is_wrong(key, received)
        elif response.status >= 500 and key not in self.turns:
            # The upstream failed, and there is no earlier answer.
            self.counts.unknown += 1
            wrong = None
        else:
            wrong = f"HTTP {response.status}, though there was an answer before"
        if wrong is not None:
            text = received[:500].decode(errors="replace")
            self.counts.wrong.append(f"question {key}: {wrong}\n{text}")

    def what_is_wrong(self, key: int, body: bytes) -> str | None:
        try:
            items = json.loads(body)["output"]["parameters"]
            names = [item["name"] for item in items]
            turns = {int(item["turn"]) for item in items}
        except (ValueError, KeyError, TypeError) as error:
            return f"not a list of items: {error!r}"
        if names != [f"{key}-{name}" for name in ITEMS]:
            return f"the items are {names}"
        if len(turns) != 1:
            return f"put together from {len(turns)} answers"
        (turn,) = turns
        if turn < self.turns.get(key, 0):
            return f"older than the answer before: {turn} after {self.turns[key]}"
        self.turns[key] = turn
        return None


def main() -> int:
    return exit_code("soak", lambda: soak(parse_arguments()))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Watches the gateway's memory under churn.")
    parser.add_argument("--gateway", type=Path, required=True, help="the gateway, built with `make dist`")
    parser.add_argument(
        "--examples", type=Path, required=True, help="where cargo put the example `upstream`"
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default 10)")
    parser.add_argument(
        "--keys", type=int, default=10_000, help="questions in a round (default 10000)"
    )
    return parser.parse_args()


def soak(arguments: argparse.Namespace) -> int:
    upstream_binary = arguments.examples / "upstream"
    for binary in (arguments.gateway, upstream_binary):
        if not (binary.is_file() and os.access(binary, os.X_OK)):
            raise BenchError(f"{binary} is not there: build it first")
    cores = sorted(os.sched_getaffinity(0))
    server_core, client_core = cores[0], cores[-1]
    os.sched_setaffinity(0, {client_core})
    with (
        tempfile.TemporaryDirectory(prefix="appset-gateway-soak-") as folder,
        contextlib.ExitStack() as stack,
    ):
        directory = Path(folder)
        upstream_port, port, admin = free_ports(3)
        argv = [str(upstream_binary.resolve()), f"127.0.0.1:{upstream_port}"]
        upstream = Server(
            "upstream",
            argv,
            port=upstream_port,
            core=client_core,
            log=directory / "upstream.log",
            environment={},
        )
        stack.callback(upstream.stop)
        upstream.wait_until(answers_get("/v1/items"))

        token_file, config = directory / "token", directory / "gateway.yaml"
        token_file.write_text(TOKEN)
        token_file.chmod(0o600)
        cache = directory / "answers.redb"
        config.write_text(
            CONFIG.format(
                port=port, admin=admin, token_file=token_file, cache=cache, upstream=upstream_port
            )
        )
        gateway = Server(
            "gateway",
            [str(arguments.gateway.resolve()), "serve", "--config", str(config)],
            port=port,
            core=server_core,
            log=directory / "gateway.log",
            environment={},
        )
        stack.callback(gateway.stop)
        # Any answer proves that the server listens.
        gateway.wait_until(lambda server: answers_anything(server.port))
        samples, counts = drive(gateway, cache, arguments)
    return report(samples, counts, arguments)


def answers_anything(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/")
        connection.getresponse()
        return True
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def drive(
    gateway: Server, cache: Path, arguments: argparse.Namespace
) -> tuple[list[Sample], Counts]:
    over = threading.Event()
    share = max(1, arguments.keys // CLIENTS)
    askers = [Asker(gateway.port, number, share, over) for number in range(CLIENTS)]
    began, seconds = time.monotonic(), arguments.minutes * 60
    samples: list[Sample] = []
    for asker in askers:
        asker.start()
    try:
        while (passed := time.monotonic() - began) < seconds:
            time.sleep(min(SAMPLE_SECONDS, seconds - passed))
            if gateway.process.poll() is not None:
                raise BenchError(f"the gateway ended\n{gateway.log_tail()}")
            counts = total(askers)
            samples.append(
                Sample(
                    seconds=time.monotonic() - began,
                    resident_mib=gateway.resident_mib(),
                    disk_mib=cache.stat().st_size / MIB,
                    answers=counts.answers,
                    hits=counts.hits,
                    unknown=counts.unknown,
                )
            )
            gateway.clear_log()
            last = samples[-1]
            progress(f"{last.seconds:.0f} s of {seconds:.0f}: {last.resident_mib:.1f} MiB")
            if counts.wrong:
                break
    finally:
        over.set()
        for asker in askers:
            asker.join(timeout=35)
        progress("")
    return samples, total(askers)


def total(askers: list[Asker]) -> Counts:
    counts = Counts()
    for asker in askers:
        counts.answers += asker.counts.answers
        counts.unknown += asker.counts.unknown
        counts.hits += asker.counts.hits
        counts.wrong += asker.counts.wrong
    return counts


def report(samples: list[Sample], counts: Counts, arguments: argparse.Namespace) -> int:
    title = f"{arguments.keys} questions, round and round for {arguments.minutes:g} minutes"
    header = ["seconds", "resident MiB", "file MiB", "answers", "hits", "unknown"]
    table = Table("soak", title, header)
    step = max(1, len(samples) // ROWS)
    for sample in samples[step - 1 :: step]:
        figures = (f"{sample.resident_mib:.1f}", f"{sample.disk_mib:.1f}")
        seen = (str(sample.answers), str(sample.hits), str(sample.unknown))
        table.rows.append([f"{sample.seconds:.0f}", *figures, *seen])
    if len(samples) < 3:
        raise BenchError("too short to tell")

    resident = [sample.resident_mib for sample in samples]
    third = len(resident) // 3
    middle = statistics.median(resident[third : 2 * third])
    last = statistics.median(resident[2 * third :])
    highest, growth = max(resident), last / middle
    table.remarks += [
        f"resident at most {highest:.1f} MiB: {against(highest, TARGET_RESIDENT_MIB, ' MiB')}",
        f"last third {last:.1f} MiB over middle third {middle:.1f} MiB: {growth:.3f}, "
        f"{against(growth, TARGET_GROWTH)}",
        f"wrong answers: {len(counts.wrong)} of {counts.answers + counts.unknown}",
        *counts.wrong[:3],
    ]
    print(table.text())
    is_good = highest <= TARGET_RESIDENT_MIB and growth <= TARGET_GROWTH and not counts.wrong
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
