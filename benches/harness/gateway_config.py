"""The configuration of a measured gateway: a route for each workload."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from .workload import HIT_PARAMETERS

# A port without a listener, for the routes that a scenario does not ask.
NOBODY = 9

# So little memory is full before the first round begins: then no look-up pays for its growth.
SMALL_MEMORY = "2MiB"

CONFIG = """\
server: {{ listen: "127.0.0.1:{port}", admin: "127.0.0.1:{admin}", deadline: 25s }}
log: {{ format: json, level: info }}
auth: {{ tokens: [ {{ name: argocd, file: "{token_file}", routes: ["*"] }} ] }}
cache: {{ memory: {memory} }}
registries: {{ "127.0.0.1:{registry}": {{ plainHttp: true }} }}
routes:
  - name: hit
    match: {{ applicationSet: hit }}
    backend: {{ fixed: {{ parameters: {hit_parameters} }} }}
  - name: miss
    backend:
      http:
        url: "http://127.0.0.1:{upstream}/v1/items?n={{{{ params.n }}}}"
        parameters: "body.items.map(t, {{'name': t.name, 'server': t.cluster}})"
        timeout: 10s
  - name: hold
    backend: {{ fixed: {{ parameters: [{{ text: {held} }}] }} }}
  - name: lookups
    backend:
      digests:
        images:
          front: {{ image: "127.0.0.1:{registry}/org/front:{{{{ params.branch | tag }}}}" }}
          back: {{ image: "127.0.0.1:{registry}/org/back:{{{{ params.branch | tag }}}}" }}
    output: {{ digestFront: "{{{{ front.digest }}}}", digestBack: "{{{{ back.digest }}}}" }}
    cache: {{ ttl: 0s }}
"""


@dataclass(frozen=True)
class GatewayOptions:
    """What differs from gateway to gateway."""

    # The ports of the upstream and the registry.
    upstream: int = NOBODY
    registry: int = NOBODY
    memory: str = "64MiB"
    # The size of an answer of the route `hold`.
    held_bytes: int = 1


def render(options: GatewayOptions, *, port: int, admin: int, token_file: Path) -> str:
    """The text of the configuration."""
    return CONFIG.format(
        port=port,
        admin=admin,
        token_file=token_file,
        memory=options.memory,
        registry=options.registry,
        hit_parameters=json.dumps(HIT_PARAMETERS),
        upstream=options.upstream,
        held="x" * options.held_bytes,
    )
