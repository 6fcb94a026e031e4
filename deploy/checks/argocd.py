"""Argo CD's side calls the gateway with its token."""

import re

from .faults import fault
from .reading import dig, seconds, secret_values, the


def check_argocd(root, documents, gateway_documents, config):
    """Checks that Argo CD's side calls the gateway with its token."""
    settings = dig(the(documents, "ConfigMap", "appset-gateway"), "data") or {}
    where = root / "configmap.yaml"

    match = re.fullmatch(r"\$([\w.-]+):([\w.-]+)", settings.get("token", ""))
    if not match:
        fault(where, "token must be $<Secret>:<key>")
    else:
        secret = the(documents, "Secret", match[1])
        token = secret_values(secret).get(match[2])
        if token is None:
            fault(where, f"token names the key {match[2]} of Secret/{match[1]}, which does not exist")
        elif token not in secret_values(the(gateway_documents, "Secret", "appset-gateway-token")).values():
            fault(root / "secret.yaml", "the token is not the gateway's")
        if secret and dig(secret, "metadata", "labels", "app.kubernetes.io/part-of") != "argocd":
            fault(root / "secret.yaml", "the label app.kubernetes.io/part-of: argocd is missing")

    service = the(gateway_documents, "Service", "appset-gateway")
    ports = {port["name"]: port["port"] for port in dig(service, "spec", "ports") or []}
    url = f"http://{dig(service, 'metadata', 'name')}.{dig(service, 'metadata', 'namespace')}.svc.cluster.local:{ports.get('http')}"
    if settings.get("baseUrl", "").rstrip("/") != url:
        fault(where, f"baseUrl is {settings.get('baseUrl')}, the gateway's Service is {url}")

    timeout, deadline = settings.get("requestTimeout", "30"), seconds(dig(config, "server", "deadline"))
    if not str(timeout).isdigit():
        fault(where, "requestTimeout must be whole seconds without a unit")
    elif deadline and int(timeout) <= deadline:
        fault(where, f"requestTimeout {timeout} must exceed the gateway's server.deadline, {deadline} s")
