"""One answer of more and more elements (`each`), of which one changes at a time."""

from __future__ import annotations

import http.client
import json
import tempfile
import time
from pathlib import Path
from statistics import median

from ..asker import Asker
from ..client import json_headers
from ..error import BenchError
from ..growth import SAMPLE, Column, Figures, Lab, Series, sampled, written
from ..process import Server
from ..servers import write_secret
from ..slow_service import Reply, SlowService
from .answers import HITS, ignore, restart_ms, serving

SECRET = "a-secret-of-the-sender"
# An event is done when the gateway's process has used next to nothing for so long. It syncs and counts in between.
QUIET_SECONDS, QUIET_CPU_SECONDS, MOST_SECONDS = 0.6, 0.002, 60.0

ROUTES = """\
hooks: [ {{ name: builds, kind: generic, token: {{ file: "{secret_file}" }}, subjects: "[{{'commit': body.commit}}]" }} ]
routes:
  - name: previews
    match: {{}}
    backend:
      pipeline:
        - http: {{ url: "http://127.0.0.1:{source}/pulls" }}
        - each: {{ key: [number], http: {{ url: "http://127.0.0.1:{source}/builds/{{{{ item.number }}}}" }} }}
    output: {{ number: "{{{{ item.number }}}}", digest: "{{{{ digest }}}}" }}
    cache: {{ ttl: 1h }}
"""


def commit(number: int) -> str:
    return f"{number + 1:040x}"


class Builds(SlowService):
    """A list of pull requests, and the last build of each, without delay."""

    def __init__(self, count: int) -> None:
        self.versions = [1] * count
        super().__init__(self.reply_to, 0.0, 64)

    def reply_to(self, path: str) -> Reply:
        if path == "/pulls":
            answer: object = [{"number": number, "commit": commit(number)} for number in range(len(self.versions))]
        else:
            number = int(path.rpartition("/")[2])
            answer = [{"digest": self.digest(number)}]
        return "200 OK\r\nContent-Type: application/json", json.dumps(answer).encode()

    def digest(self, number: int) -> str:
        return f"sha256:{number:032x}{self.versions[number]:032x}"


def measure(lab: Lab, count: int) -> Figures:
    folder = Path(tempfile.mkdtemp(dir=lab.directory))
    secret_file = write_secret(lab.directory / "secret", SECRET)
    with Builds(count).running() as source:
        routes = ROUTES.format(source=source.port, secret_file=secret_file)
        with serving(lab, folder, routes) as (server, hooks):
            asker = Asker(server.port)
            before, began = server.cpu_time().own, time.monotonic()
            asker.ask(["{}"])
            waited = time.monotonic() - began
            file = written(folder / "answers.redb")
            first = server.cpu_time().own - before
            changes = [change(server, hooks, source, asker, round(count * part / SAMPLE)) for part in range(SAMPLE)]
            hits = max(200, HITS // count)
            hit = sampled(server, lambda: ignore(asker.ask(["{}"] * hits)), hits)
            resident = server.resident_mib()
        start = restart_ms(lab, folder, routes)
    return {
        "waited": waited * 1e3, "first": first * 1e3, "change": median(cpu for cpu, _ in changes) * 1e3,
        "written": median(size for _, size in changes) / 1024, "hit": hit * 1e6, "resident": resident, "file": file, "start": start,
    }


def change(server: Server, hooks: int, source: SlowService, asker: Asker, number: int) -> tuple[float, int]:
    """CPU seconds and written bytes from the event about one element until the gateway rests. The answer must have it then."""
    source.versions[number] += 1
    asked, cpu, size = source.requests, settled(server), written_bytes(server)
    deliver(hooks, commit(number))
    deadline = time.monotonic() + MOST_SECONDS
    while source.requests == asked and time.monotonic() < deadline:
        time.sleep(0.01)
    used, more = settled(server) - cpu, written_bytes(server) - size
    if source.requests != asked + 1:
        raise BenchError(f"an event about one element made {source.requests - asked} requests to the source instead of one")
    answered = json.loads(asker.ask(["{}"]))["output"]["parameters"]
    if answered[number]["digest"] != source.digest(number):
        raise BenchError(f"the answer does not have the change of element {number}: {answered[number]}")
    return used, more


def deliver(hooks: int, commit: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", hooks, timeout=10)
    connection.request("POST", "/hooks/builds", json.dumps({"commit": commit}), json_headers(SECRET))
    reply = connection.getresponse()
    if reply.status != http.HTTPStatus.ACCEPTED:
        raise BenchError(f"the hook answered {reply.status}: {reply.read()!r}")
    connection.close()


def settled(server: Server) -> float:
    """The CPU seconds of the server's process, once it rests."""
    began = time.monotonic()
    while True:
        before = server.cpu_time().own
        time.sleep(QUIET_SECONDS)
        after = server.cpu_time().own
        if after - before < QUIET_CPU_SECONDS or time.monotonic() - began > MOST_SECONDS:
            return after


def written_bytes(server: Server) -> int:
    """What the process has written, to files and connections."""
    counters = dict(line.split(": ") for line in Path(f"/proc/{server.process.pid}/io").read_text().splitlines())
    return int(counters["wchar"])


SERIES = {
    "elements": Series(
        "elements in one answer, which an event changes one at a time",
        (10, 100, 1000, 10_000),
        {
            "waited": Column("the first answer", "{:,.0f} ms"),
            "first": Column("its CPU", "{:,.1f} ms"),
            "change": Column("a change of one", "{:,.2f} ms", steady=True),
            "written": Column("written for it", "{:,.1f} KiB", steady=True),
            "hit": Column("a hit", "{:,.1f} µs"),
            "resident": Column("resident", "{:,.2f} MiB"),
            "file": Column("file", "{:,.2f} MiB"),
            "start": Column("start", "{:,.1f} ms"),
        },
        measure,
    )
}
