"""How long a push takes to reach Argo CD: from the end of skopeo's push until the ApplicationSet is refreshed."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from pathlib import Path

from ..backing_services import spawn_registry
from ..bench import Bench
from ..client import free_ports, listens
from ..process import Server
from ..report import Table, against
from ..servers import Servers, running, write_secret
from ..targets import TARGET_TOLD_MS
from .refreshes import PUSHES, ApiServer, PushTimes, push_all

SECRET = "a-secret-of-the-sender"

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
argocd:
  refresh: {{ namespaces: [argocd], configMaps: [gateway], api: "http://127.0.0.1:{api}", token: {{ file: "{secret_file}" }} }}
routes:
  - name: digest
    input: [ {{ name: tag }} ]
    backend: {{ digests: {{ images: {{ app: {{ image: "127.0.0.1:{registry}/org/app:{{{{ params.tag }}}}" }} }} }} }}
    output: {{ digest: "{{{{ app.digest }}}}" }}
    cache: {{ ttl: 1h }}
"""


def measure(bench: Bench) -> Table:
    servers, folder = bench.servers, bench.directory / "push"
    folder.mkdir()
    secret_file = write_secret(folder / "secret", SECRET)
    with contextlib.ExitStack() as stack:
        api = stack.enter_context(ApiServer())
        port, admin, hooks, registry = free_ports(4)
        stack.enter_context(running(spawn_sender(servers, folder, registry, hooks), listens))
        config = folder / "gateway.yaml"
        ports = {"port": port, "admin": admin, "hooks": hooks, "registry": registry, "api": api.server_port}
        config.write_text(CONFIG.format(**ports, token_file=servers.token_file, secret_file=secret_file))
        server = stack.enter_context(running(servers.spawn_configured("push", config, port), listens))
        return tabulate(push_all(server, registry, api, folder))


def spawn_sender(servers: Servers, folder: Path, port: int, hooks: int) -> Server:
    """A docker-registry that sends its events to the gateway's port `hooks`."""
    config = folder / "registry.yaml"
    config.write_text(REGISTRY.format(port=port, hooks=hooks, secret=SECRET, data=folder / "data"))
    return spawn_registry(servers, config, port)


def tabulate(told: PushTimes) -> Table:
    table = Table("push", f"{PUSHES} pushes by skopeo, until Argo CD is told", ["", "p50 ms", "p99", "max"])
    figures = (told.percentile(50), told.percentile(99), max(told.milliseconds))
    table.rows.append(["from the end of the push", *(f"{figure:.0f}" for figure in figures)])
    table.remarks = [f"p99: {against(figures[1], TARGET_TOLD_MS, ' ms')}; {told.lost} lost"]
    table.data = asdict(told)
    return table
