"""Calls for manifests with larger and larger trees, to cmp-gateway as a sidecar, by the client of its tests."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
from pathlib import Path
from statistics import median

from .. import golang
from ..error import BenchError
from ..growth import SAMPLE, Column, Figures, Lab, Series
from ..process import Server

CLIENT = Path(__file__).resolve().parents[3] / "crates" / "cmp" / "tests" / "client"

PLUGIN = """\
apiVersion: argoproj.io/v1alpha1
kind: ConfigManagementPlugin
metadata: { name: demo }
spec:
  version: v1.0
  generate: { command: [cat, manifest.yaml] }
"""
MANIFEST = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: demo }\n"

# Bytes of a message, as docs/cmp/README.md advises. By 1 KiB, which is the default, most of a call is waiting for the other side.
PIECE = "1048576"

# In memory: the price of a new file on a disk is that of its file system, and of whoever else writes to it.
MEMORY = Path("/dev/shm")


def measure(lab: Lab, count: int) -> Figures:
    with tempfile.TemporaryDirectory(prefix="appset-gateway-scale-", dir=MEMORY if MEMORY.is_dir() else lab.directory) as folder:
        return measure_in(Path(folder), lab, count)


def measure_in(folder: Path, lab: Lab, count: int) -> Figures:
    for name in ("config", "sockets", "work", "tree"):
        (folder / name).mkdir()
    (folder / "config" / "plugin.yaml").write_text(PLUGIN)
    write_tree(folder / "tree", count)
    environment = {"ARGOCD_PLUGINSOCKFILEPATH": str(folder / "sockets"), "ARGOCD_CMP_WORKDIR": str(folder / "work")}
    argv = [str(lab.cmp_gateway), "--config-dir-path", str(folder / "config")]
    server = Server("cmp-gateway", argv, port=0, core=lab.core, log=folder / "log", environment=environment)
    socket = folder / "sockets" / "demo-v1.0.sock"
    try:
        server.wait_until(lambda _: socket.exists())
        new, known = [], []
        for number in range(SAMPLE):
            # One other file makes another tree.
            (folder / "tree" / "version").write_text(str(number))
            new.append(generate(lab, server, socket, folder / "tree"))
            known.append(generate(lab, server, socket, folder / "tree"))
        peak = server.peak_mib()
    finally:
        server.stop()
    figures = {"peak": peak}
    for kind, calls in (("new", new), ("known", known)):
        waits, cpu = zip(*calls)
        # Whatever else the machine does makes a call longer, never shorter.
        figures |= {kind: min(waits), f"{kind}_cpu": median(cpu)}
    return figures


def write_tree(folder: Path, count: int) -> None:
    """So many files of 1 KiB, of which no two are the same, a hundred in a folder."""
    (folder / "manifest.yaml").write_text(MANIFEST)
    for number in range(count):
        file = folder / f"d{number // 100:03}" / f"f{number:05}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(hashlib.sha256(f"{number}.{part}".encode()).hexdigest() for part in range(16)))


def generate(lab: Lab, server: Server, socket: Path, tree: Path) -> tuple[float, float]:
    """Milliseconds that a client as Argo CD waits, without its own packing, and those of the server's processor."""
    before = server.cpu_time().own
    argv = [str(client(lab)), str(socket), "GenerateManifest", "-folder", str(tree), "-chunk", PIECE]
    run = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    used = server.cpu_time().own - before
    answer = json.loads(run.stdout or "{}")
    if answer.get("code") != "OK" or "ConfigMap" not in run.stdout:
        raise BenchError(f"no manifests: {run.stdout}{run.stderr}\n{server.log_tail()}")
    return answer["ms"], used * 1e3


def client(lab: Lab) -> Path:
    """The client, built once."""
    program = lab.directory / "cmp-client"
    if not program.exists():
        golang.build(CLIENT, program)
    return program


SERIES = {
    "plugins": Series(
        "files of 1 KiB in the tree of a call for manifests; CPU is that of the server, without launcher and plugin",
        (10, 100, 1000, 10_000),
        {
            "new": Column("new files, at best", "{:,.0f} ms"),
            "new_cpu": Column("CPU", "{:,.1f} ms"),
            "known": Column("known files, at best", "{:,.0f} ms"),
            "known_cpu": Column("CPU, known", "{:,.1f} ms"),
            "peak": Column("most memory", "{:,.2f} MiB"),
        },
        measure,
        tools=["go"],
    )
}
