"""The client's side: single requests to check answers, and wrk to produce load."""

from __future__ import annotations

import base64
import contextlib
import hmac
import http.client
import itertools
import json
import os
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from .error import BenchError
from .process import Server
from .scenario import BRANCH, GETPARAMS, LOAD_SCENARIOS, LoadScenario

TOKEN = "strong-password"
JWT_SECRET = "a secret of the benchmark alone, of 48 bytes ......"
WRK_SCRIPTS = Path(__file__).resolve().parent.parent / "wrk"

# The certificates of a run are self-signed; wrk checks none either.
ANY_CERTIFICATE = ssl.create_default_context()
ANY_CERTIFICATE.check_hostname = False
ANY_CERTIFICATE.verify_mode = ssl.CERT_NONE

# Parts of parameters that are new in this run and in all runs before it.
seeds = (f"{os.getpid():x}.{time.time_ns():x}.{number}" for number in itertools.count())


def signed_jwt() -> str:
    """A token for a day, about as long as one that an identity provider signs by RSA."""

    def part(content: bytes) -> str:
        return base64.urlsafe_b64encode(content).rstrip(b"=").decode()

    claims = {
        "iss": "bench",
        "aud": "bench",
        "sub": "argocd",
        "exp": int(time.time()) + 24 * 3600,
        "groups": [f"group-{number:03}" for number in range(40)],
    }
    signed = ".".join(part(json.dumps(each).encode()) for each in ({"alg": "HS256"}, claims))
    return f"{signed}.{part(hmac.digest(JWT_SECRET.encode(), signed.encode(), 'sha256'))}"


JWT = signed_jwt()


def token_of(scenario: LoadScenario) -> str:
    return JWT if scenario.by_jwt else TOKEN


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def parameters(self) -> Any:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return json.loads(self.body)["output"]["parameters"]
        return None

    def __str__(self) -> str:
        head = "\n".join(f"{name}: {value}" for name, value in self.headers.items())
        return f"HTTP {self.status}\n{head}\n\n{self.body[:2000].decode(errors='replace')}"


def ask(port: int, scenario: LoadScenario) -> Answer:
    """One request of the kind wrk sends, on a connection of its own."""
    if scenario.is_hit:
        name, parameters = "hit", {"branch": BRANCH}
    else:
        name, parameters = "bench", {"branch": BRANCH, "n": next(seeds)}
    body = json.dumps({"applicationSetName": name, "input": {"parameters": parameters}})
    token = token_of(scenario)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    connection: http.client.HTTPConnection
    if scenario.by_tls:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=ANY_CERTIFICATE)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", scenario.path, body, headers)
        response = connection.getresponse()
        received = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, received, response.read())
    finally:
        connection.close()


def fill(port: int, answers: int) -> None:
    """Has the gateway remember so many answers of its route `hold`."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        for number in range(answers):
            body = json.dumps({"applicationSetName": "", "input": {"parameters": {"n": str(number)}}})
            connection.request("POST", f"/hold{GETPARAMS}", body, headers)
            response = connection.getresponse()
            response.read()
            if response.status != http.HTTPStatus.OK:
                raise BenchError(f"the gateway does not remember answer {number}: {response.status}")
    finally:
        connection.close()


def answers_hits(server: Server) -> bool:
    return answers(LOAD_SCENARIOS["hit64"])(server)


def answers(scenario: LoadScenario) -> Callable[[Server], bool]:
    def ready(server: Server) -> bool:
        try:
            return ask(server.port, scenario).status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False

    return ready


def answers_get(path: str) -> Callable[[Server], bool]:
    def ready(server: Server) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    return ready


def listens(server: Server) -> bool:
    """Whether the server takes connections."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=10):
        return True
    return False


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for opened in sockets:
            opened.bind(("127.0.0.1", 0))
        return [int(opened.getsockname()[1]) for opened in sockets]


@dataclass(frozen=True)
class Round:
    """One server driven once."""

    requests: int
    cpu_us: float
    children_us: float
    requests_per_second: float
    p50_us: float
    p99_us: float
    resident_mib: float
    # HEADs to the registry per request, and its CPU time per HEAD.
    heads: float = 0.0
    head_us: float = 0.0


def drive(server: Server, scenario: LoadScenario, seconds: int, core: int) -> Round:
    """Runs wrk on `core`; fails unless every request was answered well."""

    def run() -> dict[str, Any]:
        summary = run_wrk(server, scenario, seconds, core)
        if summary["requests"] == 0 or any(summary["errors"].values()):
            raise BenchError(failure(server, scenario, summary))
        return summary

    return measure(server, run)


def drive_loop(server: Server, tasks: int, seconds: int) -> Round:
    """Has heads.rs look up pair after pair by itself."""

    def run() -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=seconds + 60)
        try:
            connection.request("POST", f"/loop?seconds={seconds}&tasks={tasks}")
            response = connection.getresponse()
            body = response.read()
            if response.status != http.HTTPStatus.OK:
                raise BenchError(f"{server.name} answered {response.status}\n{server.log_tail()}")
            summary: dict[str, Any] = json.loads(body)
            return summary
        finally:
            connection.close()

    return measure(server, run)


def measure(server: Server, run: Callable[[], dict[str, Any]]) -> Round:
    before = server.cpu_time()
    summary = run()
    used = server.cpu_time() - before
    requests = int(summary["requests"])
    return Round(
        requests=requests,
        cpu_us=used.own * 1e6 / requests,
        children_us=used.children * 1e6 / requests,
        requests_per_second=requests * 1e6 / summary["duration_us"],
        p50_us=float(summary["p50_us"]),
        p99_us=float(summary["p99_us"]),
        resident_mib=server.resident_mib(),
    )


def run_wrk(server: Server, scenario: LoadScenario, seconds: int, core: int) -> dict[str, Any]:
    scheme = "https" if scenario.by_tls else "http"
    argv = [
        *("taskset", "--cpu-list", str(core), "wrk"),
        *("--threads", "1", "--connections", str(scenario.connections)),
        *("--duration", f"{seconds}s", "--timeout", "10s"),
        *("--script", scenario.script, f"{scheme}://127.0.0.1:{server.port}{scenario.path}"),
    ]
    try:
        run = subprocess.run(
            argv,
            cwd=WRK_SCRIPTS,
            env={**os.environ, "BENCH_TOKEN": token_of(scenario), "BENCH_SEED": next(seeds)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds + 60,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{server.name}: wrk did not end: {error}") from error
    found = re.search(r"^BENCH (\{.*\})$", run.stdout, re.MULTILINE)
    if run.returncode != 0 or found is None:
        raise BenchError(f"{server.name}: wrk failed ({run.returncode}):\n{run.stdout}")
    summary: dict[str, Any] = json.loads(found[1])
    return summary


def failure(server: Server, scenario: LoadScenario, summary: Mapping[str, Any]) -> str:
    """What went wrong under load, with a response to look at: a bad one if one comes again."""
    sample = ""
    for _ in range(20):
        try:
            answer = ask(server.port, scenario)
        except (OSError, http.client.HTTPException) as error:
            sample = f"none: {error!r}"
            break
        sample = str(answer)
        if answer.status != http.HTTPStatus.OK:
            break
    return (
        f"{server.name}: {scenario.title}: {summary['requests']} requests, "
        f"errors {json.dumps(summary['errors'])}\n"
        f"--- a response asked for afterwards:\n{sample}\n{server.log_tail()}"
    )
