"""Single requests of a client, whether a server is ready, and free ports."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable

from .error import BenchError
from .process import Server
from .workload import BRANCH, GETPARAMS, WORKLOADS, Workload

TOKEN = "strong-password"

# Parts of parameters that are new in this run and in all runs before it.
seeds = (f"{os.getpid():x}.{time.time_ns():x}.{number}" for number in itertools.count())


def json_headers(token: str = TOKEN) -> dict[str, str]:
    """The headers of a caller's JSON."""
    return {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}


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


def ask(port: int, workload: Workload) -> Answer:
    """One request of the kind wrk sends, on a connection of its own."""
    if workload.is_hit:
        name, parameters = "hit", {"branch": BRANCH}
    else:
        name, parameters = "bench", {"branch": BRANCH, "n": next(seeds)}
    body = json.dumps({"applicationSetName": name, "input": {"parameters": parameters}})
    headers = json_headers()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", workload.path, body, headers)
        response = connection.getresponse()
        received = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, received, response.read())
    finally:
        connection.close()


def ask_route(port: int, route: str, application_set: str, parameters: dict[str, str]) -> Any:
    """The parameter sets that the route answers; any other answer is an error."""
    body = json.dumps({"applicationSetName": application_set, "input": {"parameters": parameters}})
    headers = json_headers()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", f"/{route}{GETPARAMS}", body, headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
        if response.status != http.HTTPStatus.OK:
            raise BenchError(f"{route} answered {response.status}: {answer}")
        return answer["output"]["parameters"]
    finally:
        connection.close()


def fill(port: int, count: int) -> None:
    """Has the gateway remember so many answers of its route `hold`."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        for number in range(count):
            body = json.dumps({"applicationSetName": "", "input": {"parameters": {"n": str(number)}}})
            connection.request("POST", f"/hold{GETPARAMS}", body, json_headers())
            response = connection.getresponse()
            response.read()
            if response.status != http.HTTPStatus.OK:
                raise BenchError(f"the gateway does not remember answer {number}: {response.status}")
    finally:
        connection.close()


def answers_hits(server: Server) -> bool:
    return answers(WORKLOADS["hit64"])(server)


def answers(workload: Workload) -> Callable[[Server], bool]:
    def ready(server: Server) -> bool:
        try:
            return ask(server.port, workload).status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False

    return ready


def answers_get(path: str) -> Callable[[Server], bool]:
    def ready(server: Server) -> bool:
        return get_succeeds(server.port, path)

    return ready


def get_succeeds(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


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
