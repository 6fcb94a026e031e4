#!/usr/bin/env python3
"""Asks three replicas on one store, while store, replicas and their links fail at random, and checks what the callers saw.

The source numbers its runs and names the number in each answer. Now and then it shrinks. The guard holds smaller answers for longer
than this takes, so none may ever be seen. Each replica reaches the store by a link of its own, which is cut or falls silent by itself.

Fails if

- an answer has not all of its parameter sets,
- a caller sees an earlier run than another caller saw before, of whichever replica, at any time,
- a call ends with an error while nothing has failed for a while,
- the resident size of a replica exceeds its target, or grows.

Needs no tools but Python and redis-server; see README.md beside this file.
"""

from __future__ import annotations

import argparse
import http.client
import http.server
import itertools
import json
import os
import random
import signal
import socketserver
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

sys.dont_write_bytecode = True

from harness.client import TOKEN, free_ports, listens  # noqa: E402
from harness.command import exit_code  # noqa: E402
from harness.error import BenchError  # noqa: E402
from harness.process import Server  # noqa: E402
from harness.progress import progress  # noqa: E402
from harness.workload import GETPARAMS  # noqa: E402

TARGET_RESIDENT_MIB = 128.0
TARGET_GROWTH = 1.1

REPLICAS = 3
QUESTIONS = 60
CALLERS = 6
SETS = 10
# After a fault, replicas may need so long until all of them are in contact again, and have asked the source.
CALM_AFTER_SECONDS = 15.0
BETWEEN_FAULTS = (4.0, 14.0)

CONFIG = """\
server: {{ listen: "127.0.0.1:{port}", admin: "127.0.0.1:{admin}", deadline: 10s, drain: 0s }}
log: {{ format: json, level: warn }}
auth: {{ tokens: [ {{ name: argocd, file: "{token_file}", routes: ["*"] }} ] }}
cache: {{ path: "{cache}", shared: {{ url: "redis://127.0.0.1:{store}" }} }}
routes:
  - name: soak
    match: {{}}
    backend: {{ http: {{ url: "http://127.0.0.1:{source}/{{{{ params.n }}}}", timeout: 5s }} }}
    cache: {{ ttl: 1s, staleWhileRevalidate: 2s, staleIfError: 24h }}
    guard: {{ confirmFor: 24h }}
"""


class Source(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """Answers with `SETS` parameter sets, or fewer while it shrinks. Each answer has a later number."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.numbers = itertools.count(1)
        self.is_shrunk = False
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        source = self.server
        assert isinstance(source, Source)
        number = next(source.numbers)
        count = random.choice([0, 1, SETS // 2]) if source.is_shrunk else SETS
        body = json.dumps([{"name": f"app-{each}", "run": str(number)} for each in range(count)]).encode()
        self.send_response(http.HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@dataclass(frozen=True)
class Call:
    """What a caller saw. Times are of one clock."""

    began: float
    ended: float
    run: int
    replica: int


@dataclass
class Seen:
    """What all callers saw, by question."""

    calls: dict[int, list[Call]] = field(default_factory=lambda: defaultdict(list))
    errors: list[tuple[Call, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    sources: Counter[str] = field(default_factory=Counter)


class Link:
    """The way of one replica to the store. It works, is cut, is silent, or loses the replies."""

    def __init__(self, store_port: int) -> None:
        self.store_port, self.state = store_port, "works"
        (self.port,) = free_ports(1)
        self.sockets: list[socket.socket] = []
        self.listener: socket.socket | None = None
        self.open()

    def open(self) -> None:
        listener = socket.create_server(("127.0.0.1", self.port))
        self.listener = listener
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()

    def accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", self.store_port))
            except OSError:
                if self.listener is not listener:
                    return
                client.close()
                continue
            self.sockets += [client, server]
            for source, target, lost in [(client, server, ("silent",)), (server, client, ("silent", "replies lost"))]:
                threading.Thread(target=self.pump, args=(source, target, lost), daemon=True).start()

    def pump(self, source: socket.socket, target: socket.socket, lost: tuple[str, ...]) -> None:
        try:
            while data := source.recv(65536):
                if self.state not in lost:
                    target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            shut(end)

    def set(self, state: str) -> None:
        before, self.state = self.state, state
        if state == "cut" and self.listener is not None:
            listener, self.listener = self.listener, None
            shut(listener)
            sockets, self.sockets = self.sockets, []
            for one in sockets:
                shut(one)
        elif before == "cut" and state != "cut":
            self.open()


def shut(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    one.close()


class Fleet:
    """The replicas, their store and their source."""

    def __init__(self, gateway: Path, directory: Path) -> None:
        self.gateway, self.directory = gateway, directory
        self.token_file = directory / "token"
        self.token_file.write_text(TOKEN)
        self.token_file.chmod(0o600)
        self.logs = directory / "logs"
        self.logs.mkdir()
        self.source = Source()
        (self.store_port,) = free_ports(1)
        self.core = sorted(os.sched_getaffinity(0))[0]
        self.starts = itertools.count()
        self.store = self.start_store()
        self.links = [Link(self.store_port) for _ in range(REPLICAS)]
        self.ports: dict[int, int] = {}
        self.replicas = {number: self.start(number) for number in range(REPLICAS)}
        for replica in self.replicas.values():
            replica.wait_until(answers)

    def start_store(self) -> Server:
        folder = self.directory / "store"
        folder.mkdir(exist_ok=True)
        argv = ["redis-server", "--port", str(self.store_port), "--bind", "127.0.0.1", "--dir", str(folder)]
        argv += ["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]
        store = self.server("redis-server", argv, self.store_port)
        store.wait_until(listens)
        return store

    def start(self, number: int) -> Server:
        port, admin = free_ports(2)
        folder = self.directory / f"replica-{number}"
        folder.mkdir(exist_ok=True)
        config = folder / "gateway.yaml"
        values = {"token_file": self.token_file, "cache": folder / "answers.redb", "store": self.links[number].port}
        config.write_text(CONFIG.format(port=port, admin=admin, source=self.source.server_port, **values))
        argv = [str(self.gateway), "serve", "--config", str(config)]
        server = self.server(f"replica-{number}", argv, port)
        self.ports[number] = port
        return server

    def server(self, name: str, argv: list[str], port: int) -> Server:
        log = self.logs / f"{name}-{next(self.starts)}.log"
        return Server(name, argv, port=port, core=self.core, log=log, environment={})

    def redis(self, *command: str) -> None:
        argv = ["redis-cli", "-p", str(self.store_port), *command]
        subprocess.run(argv, check=True, capture_output=True, timeout=10)

    def stop(self) -> None:
        for server in [*self.replicas.values(), self.store]:
            server.stop(patience=0)


def answers(server: Server) -> bool:
    try:
        return ask(http.client.HTTPConnection("127.0.0.1", server.port, timeout=10), 0)[0] == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False


def ask(connection: http.client.HTTPConnection, question: int) -> tuple[int, str, bytes]:
    body = json.dumps({"applicationSetName": "soak", "input": {"parameters": {"n": str(question)}}})
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    connection.request("POST", GETPARAMS, body, headers)
    response = connection.getresponse()
    return response.status, response.getheader("cache-status", ""), response.read()


def call(fleet: Fleet, seen: Seen, lock: threading.Lock, over: threading.Event) -> None:
    """Asks random replicas random questions."""
    connections: dict[int, http.client.HTTPConnection] = {}
    while not over.is_set():
        replica, question = random.choice(list(fleet.ports)), random.randrange(QUESTIONS)
        port = fleet.ports.get(replica)
        if port is None:
            continue
        if port not in connections:
            connections[port] = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        began = time.monotonic()
        try:
            status, source, body = ask(connections[port], question)
        except (OSError, http.client.HTTPException):
            # The replica was killed. Its Service sends calls elsewhere.
            connections.pop(port).close()
            time.sleep(0.01)
            continue
        ended = time.monotonic()
        with lock:
            judge(seen, Call(began, ended, 0, replica), question, status, source, body)


def judge(seen: Seen, one: Call, question: int, status: int, source: str, body: bytes) -> None:
    text = body[:300].decode(errors="replace")
    if status != http.HTTPStatus.OK:
        seen.errors.append((one, f"question {question} at replica {one.replica}: HTTP {status}: {text}"))
        return
    sets = json.loads(body)["output"]["parameters"]
    if len(sets) != SETS or len({each["run"] for each in sets}) != 1:
        seen.wrong.append(f"question {question} at replica {one.replica}: {len(sets)} parameter sets: {text}")
        return
    seen.sources["hit" if "; hit" in source else "other"] += 1
    seen.calls[question].append(Call(one.began, one.ended, int(sets[0]["run"]), one.replica))


def faults(fleet: Fleet) -> dict[str, Callable[[], None]]:
    """What may happen."""

    def link(state: str) -> None:
        one = random.choice(fleet.links)
        one.set(state)
        time.sleep(random.uniform(2, 12))
        one.set("works")

    def links() -> None:
        for one in fleet.links:
            one.set(random.choice(["cut", "silent", "replies lost", "works"]))
        time.sleep(random.uniform(1, 6))
        for one in fleet.links:
            one.set("works")

    def outdated() -> None:
        """A replica is killed, the others go on, the store goes, and the replica starts from its file."""
        number = random.randrange(REPLICAS)
        port = fleet.ports.pop(number)
        fleet.replicas[number].stop(patience=0)
        time.sleep(random.uniform(3, 6))
        for one in fleet.links:
            one.set("cut")
        server = fleet.start(number)
        server.wait_until(listens)
        fleet.replicas[number] = server
        time.sleep(random.uniform(2, 4))
        for one in fleet.links:
            one.set("works")
        assert port != fleet.ports[number]

    def freeze() -> None:
        fleet.store.process.send_signal(signal.SIGSTOP)
        time.sleep(random.uniform(0.3, 4))
        fleet.store.process.send_signal(signal.SIGCONT)

    def kill_store() -> None:
        fleet.store.stop(patience=0)
        time.sleep(random.uniform(0, 3))
        fleet.store = fleet.start_store()

    def fill() -> None:
        fleet.redis("CONFIG", "SET", "maxmemory", "1")
        time.sleep(random.uniform(0.5, 3))
        fleet.redis("CONFIG", "SET", "maxmemory", "0")

    def shrink() -> None:
        fleet.source.is_shrunk = True
        time.sleep(random.uniform(1, 4))
        fleet.source.is_shrunk = False

    def kill_replica(forgets: bool) -> None:
        number = random.randrange(REPLICAS)
        fleet.ports.pop(number)
        fleet.replicas[number].stop(patience=0)
        if forgets:
            for file in (fleet.directory / f"replica-{number}").glob("answers*"):
                file.unlink()
        server = fleet.start(number)
        # Calls reach it once its startup probe has passed.
        port = fleet.ports.pop(number)
        server.wait_until(answers)
        fleet.replicas[number] = server
        fleet.ports[number] = port

    return {
        "the store hangs": freeze,
        "the store is killed": kill_store,
        "the store is emptied": lambda: fleet.redis("FLUSHALL"),
        "the list of versions is removed": lambda: fleet.redis("DEL", "{appset-gateway}:index"),
        "the store is full": fill,
        "connections are cut": lambda: fleet.redis("CLIENT", "KILL", "TYPE", "normal"),
        "a link is cut": lambda: link("cut"),
        "a link is silent": lambda: link("silent"),
        "the replies of a link are lost": lambda: link("replies lost"),
        "links fail alike and differently": links,
        "a replica starts without the store": outdated,
        "the source shrinks": shrink,
        "a replica is killed": lambda: kill_replica(False),
        "a replica is killed and its file lost": lambda: kill_replica(True),
    }


def backwards(seen: Seen) -> list[str]:
    """Calls that saw an earlier run than a call that had ended before they began."""
    found = []
    for question, calls in seen.calls.items():
        ended = sorted(calls, key=lambda one: one.ended)
        following = 0
        latest: Call | None = None
        for one in sorted(calls, key=lambda one: one.began):
            while following < len(ended) and ended[following].ended < one.began:
                before = ended[following]
                following += 1
                if latest is None or before.run > latest.run:
                    latest = before
            if latest and one.run < latest.run:
                found.append(
                    f"question {question}: replica {one.replica} answered run {one.run}, {one.began - latest.ended:.3f} s "
                    f"after replica {latest.replica} had answered run {latest.run}"
                )
    return found


def in_calm(seen: Seen, troubles: list[tuple[float, float]]) -> list[str]:
    """Errors of calls that met no trouble."""
    met = lambda one: any(one.ended >= began and one.began <= ended for began, ended in troubles)
    return [text for one, text in seen.errors if not met(one)]


def soak(arguments: argparse.Namespace) -> list[str]:
    random.seed(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="appset-gateway-soak-") as directory:
        fleet = Fleet(arguments.gateway.resolve(), Path(directory))
        try:
            return watch(fleet, arguments.minutes * 60)
        finally:
            fleet.stop()


def watch(fleet: Fleet, seconds: float) -> list[str]:
    connection = http.client.HTTPConnection("127.0.0.1", fleet.ports[0], timeout=30)
    for question in range(QUESTIONS):
        status, _, body = ask(connection, question)
        if status != http.HTTPStatus.OK:
            raise BenchError(f"question {question}: HTTP {status}: {body!r}")
    seen, lock, over = Seen(), threading.Lock(), threading.Event()
    callers = [threading.Thread(target=call, args=(fleet, seen, lock, over), daemon=True) for _ in range(CALLERS)]
    for caller in callers:
        caller.start()
    happened: Counter[str] = Counter()
    troubles: list[tuple[float, float]] = []
    resident: dict[int, list[tuple[int, float]]] = defaultdict(list)
    known = faults(fleet)
    began = time.monotonic()
    while time.monotonic() - began < seconds and not seen.wrong:
        # Each once before any comes again.
        name = random.choice([each for each in known if happened[each] == min(happened[one] for one in known)])
        progress(f"{time.monotonic() - began:.0f} of {seconds:.0f} s: {name}")
        start = time.monotonic()
        known[name]()
        happened[name] += 1
        troubles.append((start, time.monotonic() + CALM_AFTER_SECONDS))
        time.sleep(CALM_AFTER_SECONDS)
        time.sleep(random.uniform(*BETWEEN_FAULTS))
        for number, server in fleet.replicas.items():
            resident[number].append((server.process.pid, server.resident_mib()))
    over.set()
    for caller in callers:
        caller.join()
    progress("")
    return report(seen, happened, troubles, resident)


def report(
    seen: Seen,
    happened: Counter[str],
    troubles: list[tuple[float, float]],
    resident: dict[int, list[tuple[int, float]]],
) -> list[str]:
    calls = sum(len(each) for each in seen.calls.values())
    print(
        f"{calls} answers, {seen.sources['hit']} of them hits, and {len(seen.errors)} errors, to {len(seen.calls)} questions at "
        f"{REPLICAS} replicas"
    )
    print("faults: " + ", ".join(f"{name} ({count})" for name, count in sorted(happened.items())))
    wrong = seen.wrong + backwards(seen) + in_calm(seen, troubles)
    largest = max(size for sizes in resident.values() for _, size in sizes)
    print(f"resident: at most {largest:.1f} MiB, target ≤ {TARGET_RESIDENT_MIB:.0f} MiB")
    if largest > TARGET_RESIDENT_MIB:
        wrong.append(f"a replica had {largest:.1f} MiB")
    for number, sizes in resident.items():
        # Of the process that lived longest.
        (process, count), *_ = Counter(process for process, _ in sizes).most_common(1)
        own = [size for of, size in sizes if of == process]
        if count >= 12:
            growth = statistics.median(own[count * 2 // 3 :]) / statistics.median(own[count // 3 : count * 2 // 3])
            print(f"replica {number}: its size grew by a factor of {growth:.2f}, target ≤ {TARGET_GROWTH}")
            if growth > TARGET_GROWTH:
                wrong.append(f"replica {number} grew by a factor of {growth:.2f}")
    return wrong


def main() -> int:
    return exit_code("soak_replicas", lambda: conclude(soak(parse_arguments())))


def conclude(wrong: list[str]) -> int:
    """Prints what was wrong; returns the exit code."""
    for one in wrong[:20]:
        print(f"wrong: {one}", file=sys.stderr)
    print(f"{len(wrong)} things are wrong" if wrong else "nothing is wrong", flush=True)
    return 1 if wrong else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Asks three replicas while their store and they themselves fail.")
    parser.add_argument("--gateway", type=Path, required=True, help="the gateway, usually built with `make dist`")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default 10)")
    parser.add_argument("--seed", type=int, default=None, help="for the same order of faults again")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
