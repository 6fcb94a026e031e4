"""How long a push takes to reach Argo CD, and what hooks spare a source."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass
from pathlib import Path

from ..backing_services import spawn_registry
from ..bench import Bench
from ..client import free_ports, listens
from ..process import Server
from ..progress import progress
from ..report import Table, against
from ..servers import Servers, running
from ..targets import TARGET_BESIDE_MS, TARGET_POLLS_RATIO, TARGET_TOLD_MS
from .hooks import EVENTS, SECRET, Burst, burst
from .previews import MINUTES, PREVIEWS, Source, follow
from .refreshes import PUSHES, ApiServer, PushTimes, push_all

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


@dataclass(frozen=True)
class Results:
    told: PushTimes
    burst: Burst
    # Requests to the source, and old answers: with hooks, and with polling.
    pushed: int
    pushed_late: int
    polled: int
    polled_late: int


@dataclass(frozen=True)
class Installation:
    """Files and ports that the gateways of this scenario are configured with."""

    folder: Path
    secret_file: Path
    hooks: int
    registry: int
    api: int
    source: int

    def spawn_gateway(self, servers: Servers, ttl: str) -> Server:
        """A gateway whose answers live for `ttl`."""
        port, admin = free_ports(2)
        config = self.folder / f"gateway-{ttl}.yaml"
        ports = {"port": port, "admin": admin, "hooks": self.hooks, "registry": self.registry}
        ports |= {"api": self.api, "source": self.source}
        files = {"token_file": servers.token_file, "secret_file": self.secret_file}
        config.write_text(CONFIG.format(ttl=ttl, **ports, **files))
        return servers.spawn_configured(f"push-{ttl}", config, port)


def measure(bench: Bench) -> Table:
    folder = bench.directory / "push"
    folder.mkdir()
    secret_file = folder / "secret"
    secret_file.write_text(SECRET)
    with contextlib.ExitStack() as stack:
        api, source = stack.enter_context(ApiServer()), stack.enter_context(Source())
        hooks, registry = free_ports(2)
        stack.enter_context(running(spawn_sender(bench.servers, folder, registry, hooks), listens))
        installation = Installation(folder, secret_file, hooks, registry, api.server_port, source.server_port)
        with running(installation.spawn_gateway(bench.servers, "10s"), listens) as server:
            told = push_all(server, registry, api, folder)
            progress("push: 10,000 events")
            events = burst(server, hooks)
            progress("push: an hour with hooks")
            pushed, pushed_late = follow(server, source, hooks)
        with running(installation.spawn_gateway(bench.servers, "500ms"), listens) as server:
            progress("push: an hour of polling")
            polled, polled_late = follow(server, source, None)
    return tabulate(Results(told, events, pushed, pushed_late, polled, polled_late))


def spawn_sender(servers: Servers, folder: Path, port: int, hooks: int) -> Server:
    """A docker-registry that sends its events to the gateway's port `hooks`."""
    config = folder / "registry.yaml"
    config.write_text(REGISTRY.format(port=port, hooks=hooks, secret=SECRET, data=folder / "data"))
    return spawn_registry(servers, config, port)


def tabulate(results: Results) -> Table:
    told, events, pushed, polled = results.told, results.burst, results.pushed, results.polled
    table = Table("push", f"{PUSHES} pushes by skopeo, until Argo CD is told", ["", "p50 ms", "p99", "max"])
    figures = (told.percentile(50), told.percentile(99), max(told.milliseconds))
    table.rows.append(["from the end of the push", *(f"{figure:.0f}" for figure in figures)])
    ratio = pushed / polled
    table.remarks = [
        f"p99: {against(figures[1], TARGET_TOLD_MS, ' ms')}; {told.lost} lost",
        f"{PREVIEWS} previews, each built once, an hour in {MINUTES} s: {pushed} requests with hooks and "
        f"`ttl: 10m`, {polled} with polling each minute; {ratio:.2f}, {against(ratio, TARGET_POLLS_RATIO)}",
        f"answers that were old 30 s after the build or later: {results.pushed_late} with hooks, "
        f"{results.polled_late} with polling",
        f"{EVENTS} events in {events.seconds:.0f} s: {events.taken} taken, {events.refused} refused, "
        f"resident {events.grown_mib:+.1f} MiB; calls of others, with the client's time, p99 {events.p99_ms:.1f} ms, "
        f"{against(events.p99_ms, TARGET_BESIDE_MS, ' ms')}",
    ]
    late = [results.pushed_late, results.polled_late]
    table.data = {"burst": asdict(events), "told": asdict(told), "pushed": pushed, "polled": polled, "late": late}
    return table
