"""The Deployment fits the configuration that it mounts."""

import re

from .faults import ROOT, fault
from .memory import check_memory
from .reading import dig, parse, seconds, secret_values, the


def gateway_config(documents):
    return dig(the(documents, "ConfigMap", "appset-gateway-config"), "data", "gateway.yaml")


def check_gateway(root, documents):
    """Checks that the Deployment fits the configuration that it mounts. Returns the configuration."""
    text = gateway_config(documents)
    if text is None:
        fault(root, "no ConfigMap appset-gateway-config with gateway.yaml")
        return {}
    config = dict(*parse(text, root / "gateway.yaml"))
    deployment = the(documents, "Deployment", "appset-gateway")
    pod = dig(deployment, "spec", "template", "spec") or {}
    container = dig(pod, "containers", 0) or {}
    where = root / "deployment.yaml"

    declared = {port.get("name"): str(port["containerPort"]) for port in container.get("ports", [])}
    for name, key in (("http", "listen"), ("admin", "admin")):
        port = str(dig(config, "server", key)).rpartition(":")[2]
        if declared.get(name) != port:
            fault(where, f"the container's port {name} is {declared.get(name)}, the configuration's server.{key} is {port}")

    volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
    mounts = {mount["mountPath"]: volumes.get(mount["name"], {}) for mount in container.get("volumeMounts", [])}
    values = {}  # of each role
    for token in dig(config, "auth", "tokens") or []:
        folder, _, key = str(token.get("file")).rpartition("/")
        secret = the(documents, "Secret", dig(mounts.get(folder), "secret", "secretName") or "?")
        if key not in secret_values(secret):
            fault(root / "gateway.yaml", f"the token {token.get('name')!r} is read from {token.get('file')}, which nothing mounts")
        values.setdefault(token.get("role", "caller"), set()).add(secret_values(secret).get(key))
    if "admin" not in values:
        fault(root / "gateway.yaml", "no token has `role: admin` and a `file`, so `appset-gateway held list` fails in the pod")
    elif values["admin"] & values.get("caller", set()):
        fault(root / "secret.yaml", "the admin token must differ from the callers' tokens")
    check_memory(root, documents, deployment, config, mounts)

    deadline, grace = seconds(dig(config, "server", "deadline")), pod.get("terminationGracePeriodSeconds", 30)
    drain = 10 if dig(config, "server", "drain") is None else seconds(dig(config, "server", "drain"))
    if deadline and grace <= drain + deadline + 1 + 2 + 10:
        fault(where, f"terminationGracePeriodSeconds {grace} leaves no time for server.drain ({drain} s), a call of {deadline} s, scripts, "
                     "the disk and spans")

    version = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    labels = dig(deployment, "spec", "template", "metadata", "labels") or {}
    for what, value in (("image", str(container.get("image")).rpartition(":")[2]),
                        ("app.kubernetes.io/version", labels.get("app.kubernetes.io/version"))):
        if value != version:
            fault(where, f"{what} says {value}, Cargo.toml says {version}")
    return config


def check_same(config, other, folder, apart):
    """Checks that two configurations answer alike, `apart` from these keys and from lifetimes."""
    def part(of):
        routes = [{key: value for key, value in route.items() if key != "cache"} for route in of.get("routes", [])]
        return {key: value for key, value in of.items() if key not in apart} | {"routes": routes}
    if part(config) != part(other):
        fault(folder / "gateway.yaml", f"it must be base/gateway.yaml, apart from {' and '.join(f'`{key}`' for key in apart)}")
