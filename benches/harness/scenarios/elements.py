"""One call about 200 previews that are not known yet, from a list, CI and a registry that take their time."""

from __future__ import annotations

import asyncio
import hashlib
import json
import statistics
import time
from dataclasses import dataclass

from ..bench import Bench
from ..client import ask_route, free_ports, listens
from ..error import BenchError
from ..report import Table, against
from ..servers import GATEWAY, running
from ..slow_service import Reply, SlowService, fetch_all
from ..targets import TARGET_ELEMENTS_RATIO, TARGET_ELEMENTS_SECONDS

ELEMENTS = 200
SECONDS, AT_ONCE = 0.05, 16
# The gateway has so many requests under way at the host of an API.
AT_ONCE_OF_GATEWAY = 8

CONFIG = """\
server: {{ listen: "127.0.0.1:{port}", admin: "127.0.0.1:{admin}", drain: 0s }}
log: {{ format: json, level: warn }}
auth: {{ tokens: [ {{ name: argocd, file: "{token_file}", routes: ["*"] }} ] }}
registries: {{ "127.0.0.1:{registry}": {{ plainHttp: true, concurrency: {at_once} }} }}
routes:
  - name: previews
    backend:
      pipeline:
        - http: {{ url: "http://127.0.0.1:{source}/pulls" }}
        - each:
            key: [number]
            digests:
              images: {{ app: {{ image: "127.0.0.1:{registry}/org/shop:pr-{{{{ item.number }}}}" }} }}
              revision: {{ expect: "{{{{ item.sha }}}}" }}
              gate: {{ http: {{ url: "http://127.0.0.1:{source}/ci/{{{{ item.sha }}}}", verdict: body.state }} }}
    output: {{ number: "{{{{ item.number }}}}", digest: "{{{{ app.digest }}}}" }}
"""

MANIFEST, JSON = "application/vnd.oci.image.manifest.v1+json", "application/json"


def sha(number: int) -> str:
    return hashlib.sha1(str(number).encode()).hexdigest()


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


class Images:
    """An image for each preview, as a registry has it: by tag, manifest and configuration."""

    def __init__(self) -> None:
        self.replies: dict[str, Reply] = {"/v2/": (f"200 OK\r\nContent-Type: {JSON}", b"{}")}
        # The requests for one image.
        self.chains: list[list[str]] = []
        self.digests: list[str] = []
        for number in range(ELEMENTS):
            labels = {"org.opencontainers.image.revision": sha(number)}
            config = json.dumps({"os": "linux", "architecture": "amd64", "config": {"Labels": labels}}).encode()
            described = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest(config), "size": len(config)}
            manifest = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": described, "layers": []}).encode()
            named = digest(manifest)
            of_manifest = f"200 OK\r\nContent-Type: {MANIFEST}\r\nDocker-Content-Digest: {named}", manifest
            of_config = f"200 OK\r\nContent-Type: {JSON}", config
            paths = [f"/v2/org/shop/manifests/pr-{number}", f"/v2/org/shop/manifests/{named}", f"/v2/org/shop/blobs/{digest(config)}"]
            self.replies |= dict(zip(paths, (of_manifest, of_manifest, of_config)))
            self.chains.append([f"HEAD {paths[0]}", f"GET {paths[1]}", f"GET {paths[2]}"])
            self.digests.append(named)

    def reply(self, path: str) -> Reply:
        return self.replies.get(path, ("404 Not Found", b""))


def reply_of_source(path: str) -> Reply:
    if path == "/pulls":
        answer: object = [{"number": number, "sha": sha(number)} for number in range(ELEMENTS)]
    else:
        answer = {"state": "passed"}
    return f"200 OK\r\nContent-Type: {JSON}", json.dumps(answer).encode()


async def ask_bare(source: int, registry: int, images: Images) -> None:
    """The same requests without a gateway, as many at once as its limits allow."""
    await fetch_all(source, [["GET /pulls"]], 1)
    verdicts = [[f"GET /ci/{sha(number)}"] for number in range(ELEMENTS)]
    await asyncio.gather(
        fetch_all(source, verdicts, AT_ONCE_OF_GATEWAY),
        fetch_all(registry, images.chains, AT_ONCE),
    )


@dataclass(frozen=True)
class Times:
    """Seconds, and requests."""

    gateway: list[float]
    bare: list[float]
    requests: list[int]


def measure(bench: Bench) -> Table:
    images = Images()
    source = SlowService(reply_of_source, SECONDS, AT_ONCE)
    registry = SlowService(images.reply, SECONDS, AT_ONCE)
    times = Times([], [], [])
    with source.running(), registry.running():
        for number in range(bench.settings.rounds):
            before = source.requests + registry.requests
            times.gateway.append(ask_gateway(bench, number, source, registry, images))
            times.requests.append(source.requests + registry.requests - before)
            began = time.monotonic()
            asyncio.run(ask_bare(source.port, registry.port, images))
            times.bare.append(time.monotonic() - began)
    return tabulate(times)


def ask_gateway(bench: Bench, number: int, source: SlowService, registry: SlowService, images: Images) -> float:
    """How long the first call to a new gateway takes."""
    port, admin = free_ports(2)
    config = bench.directory / f"elements-{number}.yaml"
    config.write_text(
        CONFIG.format(
            port=port, admin=admin, token_file=bench.servers.token_file,
            source=source.port, registry=registry.port, at_once=AT_ONCE,
        )
    )
    with running(bench.servers.spawn_configured(GATEWAY, config, port), listens):
        began = time.monotonic()
        answer = ask_route(port, "previews", "previews", {})
        took = time.monotonic() - began
    if [each["digest"] for each in answer] != images.digests:
        raise BenchError(f"the answer has {len(answer)} sets, or wrong digests")
    return took


def tabulate(times: Times) -> Table:
    title = f"{ELEMENTS} previews that are not known yet, from sources of {SECONDS * 1000:.0f} ms that allow {AT_ONCE} at once"
    table = Table("elements", title, ["", "median s", "min", "max"])
    for name, seconds in (("gateway", times.gateway), ("the requests alone", times.bare)):
        figures = (statistics.median(seconds), min(seconds), max(seconds))
        table.rows.append([name, *(f"{figure:.2f}" for figure in figures)])
    ratios = [of_gateway / of_bare for of_gateway, of_bare in zip(times.gateway, times.bare)]
    ratio = statistics.median(ratios)
    least = max(ELEMENTS / AT_ONCE_OF_GATEWAY, ELEMENTS * 3 / AT_ONCE) * SECONDS + SECONDS
    table.remarks = [
        f"gateway / the requests alone: {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}), "
        f"{against(ratio, TARGET_ELEMENTS_RATIO)}; "
        f"{against(statistics.median(times.gateway), TARGET_ELEMENTS_SECONDS, ' s')}",
        f"{statistics.median(times.requests):.0f} requests, of which {ELEMENTS * 3} to the registry: at least {least:.2f} s",
    ]
    table.data = {"gateway": times.gateway, "bare": times.bare, "requests": times.requests}
    return table
