"""Runs `cmp-gateway` with a rendered configuration on this machine, until it serves."""

import os
import subprocess
import tempfile
import time
from pathlib import Path

import yaml

from .faults import ROOT, cannot_run

SECONDS = 30
ADDRESS = "127.0.0.1:0"


def program():
    path = Path(os.environ.get("CMP_GATEWAY") or ROOT / "target/debug/cmp-gateway")
    if not path.exists():
        cannot_run(f"no cmp-gateway at {path}; build it with: cargo build --package cmp")
    return path


def certificate(folder):
    """Writes a certificate that is its own CA: tls.crt, tls.key and ca.crt."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=plugin",
               "-addext", "subjectAltName=DNS:plugin", "-keyout", folder / "tls.key", "-out", folder / "tls.crt"]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        cannot_run("no openssl; on Debian: apt-get install openssl")
    (folder / "ca.crt").write_bytes((folder / "tls.crt").read_bytes())


def moved(value, folder):
    """A configuration with its absolute paths below `folder`, and with free ports of this machine alone."""
    if isinstance(value, dict):
        return {key: ADDRESS if key in ("admin", "address") and str(inner).startswith("0.0.0.0:") else moved(inner, folder)
                for key, inner in value.items()}
    if isinstance(value, list):
        return [moved(inner, folder) for inner in value]
    return f"{folder}{value}" if isinstance(value, str) and value.startswith("/") else value


def why_not_served(command, name, files, tokens, wanted):
    """Why `cmp-gateway <command>` with the file `name` does not write each text of `wanted` to its log; None if it does."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        for path in ("certs", "tokens", "etc/cmp", "work", "plugin", "home/argocd/cmp-server/plugins"):
            (folder / path).mkdir(parents=True)
        certificate(folder / "certs")
        for token in tokens:
            (folder / "tokens" / token).write_text("5f2c1d5e0c7d4b1a9c3e8d1f0a6b4c2e")
        for file, content in files.items():
            (folder / "etc/cmp" / file).write_text(content)
        config = folder / "etc/cmp" / name
        own = moved(yaml.safe_load(files[name]), folder)
        own.setdefault("sockets", str(folder / "home/argocd/cmp-server/plugins"))
        config.write_text(yaml.safe_dump(own))
        log = folder / "log"
        with log.open("w") as to:
            running = subprocess.Popen([program(), command, "-c", config], stdout=to, stderr=to, env={**os.environ, "TMPDIR": str(folder / "work")})
        try:
            return wait_for(running, log, wanted)
        finally:
            running.kill()
            running.wait()


def wait_for(running, log, wanted):
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        has_ended = running.poll() is not None
        text = log.read_text()
        if all(one in text for one in wanted):
            return None
        if has_ended:
            break
        time.sleep(0.05)
    return f"the log lacks one of {wanted}:\n{log.read_text().strip()[-2000:]}"
