"""Pushes to a registry: how long until the ApplicationSet that asked for the image is refreshed."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import registry
from ..client import ask_route
from ..process import Server
from ..progress import progress
from ..service import Service

PUSHES = 100
SETS = 10
LOST_AFTER_SECONDS = 15.0


class ApiServer(Service):
    """An API server with the ApplicationSets `set-0`, `set-1` …"""

    def __init__(self) -> None:
        # When each ApplicationSet was refreshed.
        self.told: dict[str, list[float]] = {}
        super().__init__()

    def answer(self, method: str, path: str, body: bytes) -> Any:
        if method == "PATCH":
            name = path.split("?")[0].rpartition("/")[2]
            self.told.setdefault(name, []).append(time.monotonic())
        generators = [{"plugin": {"configMapRef": {"name": "gateway"}}}]
        names = [f"set-{number}" for number in range(SETS)]
        items = [
            {"metadata": {"name": name, "namespace": "argocd", "uid": name}, "spec": {"generators": generators}}
            for name in names
        ]
        return {"metadata": {}, "items": items}


@dataclass
class PushTimes:
    """Milliseconds from the end of each push until Argo CD was told, and how many pushes it was never told of."""

    milliseconds: list[float] = field(default_factory=list)
    lost: int = 0

    def percentile(self, percent: int) -> float:
        ordered = sorted(self.milliseconds)
        return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def push_all(gateway: Server, registry_port: int, api: ApiServer, layouts: Path) -> PushTimes:
    """Pushes another image under each tag, one after the other, and waits until its ApplicationSet is refreshed."""
    for image in ("first", "second"):
        registry.write_oci_layout(layouts / image, image)
    options = ("--preserve-digests", "--dest-tls-verify=false", "--dest-no-creds")

    def push(image: str, tag: int) -> None:
        registry.skopeo("copy", *options, f"oci:{layouts / image}", f"docker://127.0.0.1:{registry_port}/org/app:{tag}")

    for tag in range(PUSHES):
        progress(f"push: tag {tag}")
        push("first", tag)
        ask_route(gateway.port, "digest", f"set-{tag % SETS}", {"tag": str(tag)})
    told = PushTimes()
    for tag in range(PUSHES):
        progress(f"push: {tag} of {PUSHES}")
        name = f"set-{tag % SETS}"
        before = len(api.told.get(name, []))
        push("second", tag)
        done = time.monotonic()
        while len(api.told.get(name, [])) <= before and time.monotonic() < done + LOST_AFTER_SECONDS:
            time.sleep(0.005)
        after = api.told.get(name, [])[before:]
        if after:
            # It may be told before skopeo has ended.
            told.milliseconds.append(max(0.0, after[0] - done) * 1000)
        else:
            told.lost += 1
    return told
