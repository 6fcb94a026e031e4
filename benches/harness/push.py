"""Pushes: how long from a push to a registry until Argo CD is told, and what hooks spare a source."""

from __future__ import annotations

import http.client
import http.server
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import registry
from .client import json_headers
from .error import BenchError
from .process import Server

PUSHES = 100
SETS = 10
# A minute of the comparison with polling takes a second, so its hour takes a minute.
MINUTES = 60
PREVIEWS = 200
SECRET = "a-secret-of-the-sender"
LOST_AFTER = 15.0
EVENTS = 10_000
SENDERS = 8

REGISTRY = """\
version: 0.1
log: {{ level: error, accesslog: {{ disabled: true }} }}
storage: {{ filesystem: {{ rootdirectory: "{data}" }} }}
http: {{ addr: "127.0.0.1:{port}" }}
notifications:
  endpoints:
    - name: gateway
      url: http://127.0.0.1:{hooks}/hooks/registry
      headers: {{ Authorization: [ "Bearer {secret}" ] }}
      timeout: 1s
      threshold: 5
      backoff: 1s
"""

CONFIG = """\
server: {{ listen: "127.0.0.1:{port}", admin: "127.0.0.1:{admin}", hooks: "127.0.0.1:{hooks}", drain: 0s }}
log: {{ format: json, level: warn }}
auth: {{ tokens: [ {{ name: argocd, file: "{token_file}", routes: ["*"] }} ] }}
registries: {{ "127.0.0.1:{registry}": {{ plainHttp: true }} }}
hooks:
  - {{ name: registry, kind: distribution, token: {{ file: "{secret_file}" }} }}
  - {{ name: builds, token: {{ file: "{secret_file}" }}, subjects: "[{{'route': 'items', 'parameters': {{'n': body.n}}}}]" }}
argocd:
  refresh: {{ namespaces: [argocd], configMaps: [gateway], api: "http://127.0.0.1:{api}", token: {{ file: "{secret_file}" }} }}
routes:
  - name: digest
    input: [ {{ name: tag }} ]
    backend: {{ digests: {{ images: {{ app: {{ image: "127.0.0.1:{registry}/org/app:{{{{ params.tag }}}}" }} }} }} }}
    output: {{ digest: "{{{{ app.digest }}}}" }}
    cache: {{ ttl: 1h }}
  - name: items
    input: [ {{ name: n }} ]
    backend: {{ http: {{ url: "http://127.0.0.1:{source}/{{{{ params.n }}}}" }} }}
    cache: {{ ttl: {ttl} }}
"""


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers by its server's `answer`."""

    protocol_version = "HTTP/1.1"

    def do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        content = json.dumps(self.server.answer(self.command, self.path, body)).encode()  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PATCH = do_POST = do

    def log_message(self, *_: object) -> None:
        pass


class Service(http.server.ThreadingHTTPServer):
    """A service in this process, on a port of its own."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """A gateway that ends resets its connections."""

    def answer(self, method: str, path: str, body: bytes) -> Any:
        raise NotImplementedError


class ApiServer(Service):
    """An API server with the ApplicationSets `set-0`, `set-1` …"""

    def __init__(self) -> None:
        self.told: dict[str, list[float]] = {}
        super().__init__()

    def answer(self, method: str, path: str, body: bytes) -> Any:
        if method == "PATCH":
            name = path.split("?")[0].rpartition("/")[2]
            self.told.setdefault(name, []).append(time.monotonic())
        generators = [{"plugin": {"configMapRef": {"name": "gateway"}}}]
        names = [f"set-{number}" for number in range(SETS)]
        items = [
            {"metadata": {"name": name, "namespace": "argocd", "uid": name}, "spec": {"generators": generators}}
            for name in names
        ]
        return {"metadata": {}, "items": items}


class Source(Service):
    """A source of lists. Each has a version, which a build raises."""

    def __init__(self) -> None:
        self.requests = 0
        self.versions = [1] * PREVIEWS
        super().__init__()

    def answer(self, method: str, path: str, body: bytes) -> Any:
        self.requests += 1
        return [{"name": "app", "version": str(self.versions[int(path[1:])])}]


@dataclass
class Told:
    """How long pushes took, in milliseconds, and how many were never told."""

    milliseconds: list[float] = field(default_factory=list)
    lost: int = 0

    def percentile(self, percent: int) -> float:
        ordered = sorted(self.milliseconds)
        return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def ask(port: int, route: str, application_set: str, parameters: dict[str, str]) -> Any:
    body = json.dumps({"applicationSetName": application_set, "input": {"parameters": parameters}})
    headers = json_headers()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", f"/{route}/api/v1/getparams.execute", body, headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
        if response.status != http.HTTPStatus.OK:
            raise BenchError(f"{route} answered {response.status}: {answer}")
        return answer["output"]["parameters"]
    finally:
        connection.close()


def deliver(hooks: int, body: Any) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", hooks, timeout=10)
    headers = json_headers(SECRET)
    connection.request("POST", "/hooks/builds", json.dumps(body), headers)
    status = connection.getresponse().status
    connection.close()
    if status != http.HTTPStatus.ACCEPTED:
        raise BenchError(f"the hook answered {status}")


def push_all(gateway: Server, registry_port: int, api: ApiServer, layouts: Path, tell: Callable[[str], None]) -> Told:
    """Pushes another image under each tag, one after the other, and waits until its ApplicationSet is told."""
    for image in ("first", "second"):
        registry.write_oci_layout(layouts / image, image)
    options = ("--preserve-digests", "--dest-tls-verify=false", "--dest-no-creds")

    def push(image: str, tag: int) -> None:
        registry.skopeo("copy", *options, f"oci:{layouts / image}", f"docker://127.0.0.1:{registry_port}/org/app:{tag}")

    for tag in range(PUSHES):
        tell(f"push: tag {tag}")
        push("first", tag)
        ask(gateway.port, "digest", f"set-{tag % SETS}", {"tag": str(tag)})
    told = Told()
    for tag in range(PUSHES):
        tell(f"push: {tag} of {PUSHES}")
        name = f"set-{tag % SETS}"
        before = len(api.told.get(name, []))
        push("second", tag)
        done = time.monotonic()
        while len(api.told.get(name, [])) <= before and time.monotonic() < done + LOST_AFTER:
            time.sleep(0.005)
        after = api.told.get(name, [])[before:]
        if after:
            # It may be told before skopeo has ended.
            told.milliseconds.append(max(0.0, after[0] - done) * 1000)
        else:
            told.lost += 1
    return told


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
    ask(gateway.port, "items", "set-0", {"n": "0"})
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
        ask(gateway.port, "items", "set-0", {"n": "0"})
        times.append(time.perf_counter() - asked)
        time.sleep(0.01)
    seconds = time.monotonic() - began
    refused = sum(status == http.HTTPStatus.SERVICE_UNAVAILABLE for status in statuses)
    taken = sum(status == http.HTTPStatus.ACCEPTED for status in statuses)
    if taken + refused != EVENTS:
        raise BenchError(f"the hook answered {set(statuses)}")
    p99 = sorted(times)[len(times) * 99 // 100] * 1000
    return Burst(seconds, taken, refused, p99, gateway.resident_mib() - before)


def follow(gateway: Server, source: Source, hooks: int | None) -> tuple[int, int]:
    """Asks about all previews once in each second, and builds each of them once. Returns the requests to the source, and how many answers were
    still old when they were asked for, half a second or more after their build."""
    built: dict[int, float] = {}
    before, late, began = source.requests, 0, time.monotonic()
    for minute in range(MINUTES):
        for number in range(PREVIEWS):
            due = began + minute + number / PREVIEWS
            time.sleep(max(0.0, due - time.monotonic()))
            # Each preview is built once, half a minute after it was asked about.
            target = (number + PREVIEWS // 2) % PREVIEWS
            if target % MINUTES == minute:
                source.versions[target] += 1
                built[target] = time.monotonic()
                if hooks is not None:
                    deliver(hooks, {"n": str(target)})
            asked = time.monotonic()
            answer = ask(gateway.port, "items", f"set-{number % SETS}", {"n": str(number)})
            is_old = answer[0]["version"] != str(source.versions[number])
            late += is_old and asked - built.get(number, asked) >= 0.45
    return source.requests - before, late

