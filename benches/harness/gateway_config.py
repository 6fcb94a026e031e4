"""The configuration of a measured gateway: a route for each workload."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from . import signing
from .script_commands import WORKER
from .workload import HIT_PARAMETERS

# A port without a listener, for the routes that a scenario does not ask.
NOBODY = 9

# So little memory is full before the first round begins: then no look-up pays for its growth.
SMALL_MEMORY = "2MiB"

CONFIG = """\
server: {{ listen: "127.0.0.1:{port}", admin: "127.0.0.1:{admin}", deadline: 25s }}
log: {{ format: json, level: info }}
auth: {{ tokens: [ {{ name: argocd, file: "{token_file}", routes: ["*"] }} ]{jwt} }}
cache: {{ memory: {memory}{store} }}
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
  - name: unchanged
    cache: {{ ttl: 0s }}
    backend:
      http:
        url: "http://127.0.0.1:{upstream}/v1/unchanged"
        parameters: "body.items.map(t, {{'name': t.name, 'server': t.cluster}})"
{scripts}  - name: hold
    backend: {{ fixed: {{ parameters: [{{ text: {held} }}] }} }}
  - name: digests
    backend: &digests
      digests:
        images: &images
          front: {{ image: "127.0.0.1:{registry}/org/front:{{{{ params.branch | tag }}}}" }}
          back: {{ image: "127.0.0.1:{registry}/org/back:{{{{ params.branch | tag }}}}" }}
    output: &output {{ digestFront: "{{{{ front.digest }}}}", digestBack: "{{{{ back.digest }}}}" }}
  - {{ name: lookups, backend: *digests, output: *output, cache: {{ ttl: 0s }} }}
{signed}"""

# Callers by JWT; the secret of the issuer is a file.
JWT = ', jwt: [ {{ issuer: bench, audience: bench, algorithms: [HS256], secret: {{ file: "{secret_file}" }} }} ]'

SCRIPT_ROUTE = "  - {{ name: {route}, backend: {{ script: {{ command: {command} }} }} }}\n"
WORKER_ROUTE = (
    "  - {{ name: {route}, backend: {{ script: {{ mode: worker, concurrency: 1, command: {command} }} }} }}\n"
)


@dataclass(frozen=True)
class GatewayOptions:
    """What differs from gateway to gateway."""

    # The ports of the upstream and the registry.
    upstream: int = NOBODY
    registry: int = NOBODY
    memory: str = "64MiB"
    # The URL of a store that replicas share.
    store: str = ""
    # The secret of the issuer of JWTs.
    jwt_secret_file: Path | None = None
    # The key that the images of the routes `signed` and `signed-hit` must be signed with.
    public_key: Path | None = None
    # The size of an answer of the route `hold`.
    held_bytes: int = 1


def render(
    options: GatewayOptions, *, port: int, admin: int, token_file: Path, commands: Mapping[str, list[str]]
) -> str:
    """The text of the configuration. `commands` are those of the scripts, by route."""
    return CONFIG.format(
        port=port,
        admin=admin,
        token_file=token_file,
        jwt=JWT.format(secret_file=options.jwt_secret_file) if options.jwt_secret_file else "",
        memory=options.memory,
        store=f', shared: {{ url: "{options.store}" }}' if options.store else "",
        registry=options.registry,
        hit_parameters=json.dumps(HIT_PARAMETERS),
        upstream=options.upstream,
        scripts="".join(script_route(route, command) for route, command in commands.items()),
        signed=signing.ROUTES.format(key=options.public_key) if options.public_key else "",
        held="x" * options.held_bytes,
    )


def script_route(route: str, command: list[str]) -> str:
    template = WORKER_ROUTE if route == WORKER else SCRIPT_ROUTE
    return template.format(route=route, command=json.dumps(command))
