"""`helm test` passes: a gateway with a rendered configuration is asked by the command of the test's pod, on this machine."""

import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from .charts import GATEWAY
from .faults import fault
from .reading import dig, secret_values
from .snapshots import gateway_yaml, program, snapshot

SECONDS = 60


def check_asked(name="minimal"):
    documents = snapshot(GATEWAY, name)
    pod = next((d for d in documents if d["kind"] == "Pod"), None)
    cases = next((dig(d, "data", "cases.yaml") for d in documents if dig(d, "data", "cases.yaml")), None)
    if pod is None or cases is None:
        return fault(GATEWAY.rendered / f"{name}.yaml", "has no test for `helm test`")
    with tempfile.TemporaryDirectory() as folder:
        why = serve_and_ask(Path(folder), documents, cases, dig(pod, "spec", "containers", 0, "args"))
    if why:
        fault(GATEWAY.rendered / f"{name}.yaml", f"`helm test` would fail: {why}")


def serve_and_ask(folder, documents, cases, arguments):
    """Why the test fails; None if it passes."""
    ports = free_ports(2)
    paths = {"/var/run/argo": folder / "argo", "/var/run/appset-gateway": folder / "admin", "/var/lib/appset-gateway": folder / "answers"}
    for path in paths.values():
        path.mkdir()
    for secret in (d for d in documents if d["kind"] == "Secret" and d["metadata"]["namespace"] == "appset-gateway"):
        of = {"appset-gateway-token": "argo", "appset-gateway-admin": "admin"}.get(secret["metadata"]["name"])
        if of:
            (folder / of / "token").write_text(secret_values(secret)["token"])
    text = gateway_yaml(documents)[0].replace("0.0.0.0:4355", f"127.0.0.1:{ports[0]}").replace("0.0.0.0:4356", f"127.0.0.1:{ports[1]}")
    for path, own in paths.items():
        text = text.replace(f"{path}/", f"{own}/")
    (folder / "gateway.yaml").write_text(text)
    (folder / "cases.yaml").write_text(cases)

    url = arguments[arguments.index("--url") + 1]
    here = {url: f"http://127.0.0.1:{ports[0]}", "/var/run/argo/token": str(folder / "argo/token"), "/cases/cases.yaml": str(folder / "cases.yaml")}
    with open(folder / "log", "w") as log:
        gateway = subprocess.Popen([program(), "serve", "--config", folder / "gateway.yaml"], stdout=log, stderr=log)
        try:
            if not listens(ports[0], gateway):
                return f"the gateway does not start:\n{(folder / 'log').read_text()}"
            result = subprocess.run([program(), *(here.get(one, one) for one in arguments)], capture_output=True, text=True,
                                    env={**os.environ, "NO_COLOR": "1"}, timeout=SECONDS)
        finally:
            gateway.kill()
            gateway.wait()
    return f"exit code {result.returncode}\n{result.stdout}{result.stderr}" if result.returncode != 0 else None


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def listens(port, process):
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.1)
    return False
