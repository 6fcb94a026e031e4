"""The servers of a run: each on its core, with a log and a configuration in the run's directory."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Callable

from .client import TOKEN, answers_hits, free_ports
from .gateway_config import NOBODY, GatewayOptions, render
from .process import Server
from .settings import Settings

GATEWAY, BASELINE, REFERENCE, CANARY = "gateway", "baseline", "reference", "canary"
BARE_SERVER = "bare server"
EXAMPLES = ("reference", "echo", "upstream", "heads")


class Servers:
    """Starts servers. Their names are the lines of the tables."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        self.settings = settings
        self.directory = directory
        # Not beside the configuration, whose folder the gateway watches.
        self.logs = directory / "logs"
        self.logs.mkdir()
        self.numbers = itertools.count()
        self.token_file = write_secret(directory / "token", TOKEN)

    def gateway_names(self) -> list[str]:
        return [GATEWAY] if self.settings.baseline is None else [GATEWAY, BASELINE]

    def binary(self, name: str) -> Path:
        """The program of the gateway of this name."""
        if name == BASELINE and self.settings.baseline is not None:
            return self.settings.baseline
        return self.settings.gateway

    def spawn(
        self,
        name: str,
        argv: Sequence[str],
        port: int,
        *,
        core: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Server:
        """Starts any program, on the servers' core unless `core` is another."""
        return Server(
            name,
            argv,
            port=port,
            core=self.settings.server_core if core is None else core,
            log=self.logs / f"{name}-{next(self.numbers)}.log",
            environment=environment or {},
        )

    def spawn_example(self, name: str, example: str, **options: Any) -> Server:
        """Starts one of the programs in the folder of examples."""
        (port,) = free_ports(1)
        argv = [str(self.settings.examples / example), f"127.0.0.1:{port}"]
        return self.spawn(name, argv, port, **options)

    def spawn_gateway(self, name: str, options: GatewayOptions = GatewayOptions()) -> Server:
        port, config = self.write_config(name, options)
        return self.spawn_configured(name, config, port)

    def spawn_configured(self, name: str, config: Path, port: int) -> Server:
        """Starts a gateway whose configuration is written already."""
        return self.spawn(name, [str(self.binary(name)), "serve", "--config", str(config)], port)

    def write_config(self, name: str, options: GatewayOptions) -> tuple[int, Path]:
        """A gateway's configuration, and the port that it names."""
        port, admin = free_ports(2)
        config = self.directory / f"{name}-{next(self.numbers)}.yaml"
        config.write_text(render(options, port=port, admin=admin, token_file=self.token_file))
        return port, config

    def spawn_named(self, name: str, upstream: int = NOBODY) -> Server:
        """Starts the kind of server that the name stands for."""
        if name == CANARY:
            return self.spawn_example(CANARY, "echo")
        if name != REFERENCE:
            return self.spawn_gateway(name, GatewayOptions(upstream=upstream))
        environment = {}
        if upstream != NOBODY:
            environment["REFERENCE_UPSTREAM"] = f"http://127.0.0.1:{upstream}/v1/items"
        return self.spawn_example(name, "reference", environment=environment)


@contextlib.contextmanager
def running(server: Server, ready: Callable[[Server], bool] = answers_hits) -> Iterator[Server]:
    """Waits until the server is ready, and stops it in the end."""
    try:
        server.wait_until(ready)
        yield server
    finally:
        server.stop()


def write_secret(path: Path, secret: str) -> Path:
    path.write_text(secret)
    path.chmod(0o600)
    return path
