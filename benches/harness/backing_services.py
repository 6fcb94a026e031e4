"""The services that the measured servers ask, on the client's core."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import registry
from .client import answers_get, free_ports
from .gateway_config import NOBODY
from .process import Server
from .servers import Servers, running
from .workload import WORKLOADS


@dataclass(frozen=True)
class BackingServices:
    """The services of one workload, and the parameter sets that follow from their contents."""

    parameters: Any
    # The upstream's port.
    upstream: int = NOBODY
    registry: Server | None = None

    @property
    def registry_port(self) -> int:
        return self.registry.port if self.registry else NOBODY


@contextlib.contextmanager
def backing_services(servers: Servers, workload: str) -> Iterator[BackingServices]:
    parameters = WORKLOADS[workload].parameters
    if workload == "miss":
        with run_upstream(servers) as upstream:
            yield BackingServices(parameters, upstream=upstream.port)
    elif workload == "lookups":
        with run_registry(servers) as (registry_server, found):
            yield BackingServices(found, registry=registry_server)
    else:
        yield BackingServices(parameters)


@contextlib.contextmanager
def run_upstream(servers: Servers) -> Iterator[Server]:
    upstream = servers.spawn_example("upstream", "upstream", core=servers.settings.client_core)
    with running(upstream, answers_get("/v1/items")):
        yield upstream


@contextlib.contextmanager
def run_registry(servers: Servers) -> Iterator[tuple[Server, list[dict[str, str]]]]:
    """A docker-registry with two images, and the parameter sets that name their digests."""
    (port,) = free_ports(1)
    config = servers.directory / "registry.yaml"
    config.write_text(registry.CONFIG.format(data=servers.directory / "registry", port=port))
    with running(spawn_registry(servers, config, port), answers_get("/v2/")) as server:
        yield server, [push_images(servers.directory / "images", port)]


def spawn_registry(servers: Servers, config: Path, port: int) -> Server:
    argv = ["docker-registry", "serve", str(config)]
    return servers.spawn("docker-registry", argv, port, core=servers.settings.client_core)


def push_images(images: Path, port: int) -> dict[str, str]:
    """Fills the registry; returns the parameter set that names its contents."""
    parameters = {}
    for image in ("front", "back"):
        layout = images / image
        parameters[f"digest{image.capitalize()}"] = registry.write_oci_layout(layout, image)
        registry.push(layout, port, f"org/{image}")
    return parameters
