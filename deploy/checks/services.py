"""A plugin as a service: cmp.yaml and plugin.yaml are served by cmp-gateway itself, and the objects around them fit."""

import subprocess
import tempfile
from pathlib import Path

import yaml

from .faults import DEPLOY, ROOT, fault, relative
from .programs import program, why_not_served
from .reading import dig, parse, seconds, secret_values, the

EXAMPLE = ROOT / "docs/cmp/examples/kpt"
INSTALLED = DEPLOY / "examples/kpt/applicationset.yaml"


def check_service(file, documents):
    deployment = next(d for d in documents if d["kind"] == "Deployment")
    name = deployment["metadata"]["name"]
    data = dig(the(documents, "ConfigMap", name), "data") or {}
    if not {"cmp.yaml", "plugin.yaml"} <= set(data):
        return fault(file, f"has no ConfigMap {name} with cmp.yaml and plugin.yaml")
    config = yaml.safe_load(data["cmp.yaml"])
    check_program(file, data, config)
    check_pod(file, deployment, config, documents)
    check_network(file, documents, deployment)
    return None


def check_program(file, data, config):
    """cmp-gateway takes plugin.yaml without a warning about its keys, and serves cmp.yaml by TLS."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plugin.yaml"
        path.write_text(data["plugin.yaml"])
        result = subprocess.run([program(), "check", path], capture_output=True, text=True)
    if result.returncode != 0 or "unknown" in result.stdout + result.stderr:
        fault(file, f"`cmp-gateway check` of its plugin.yaml: {result.stdout}{result.stderr}")
    tokens = [Path(token["file"]).name for token in config["listen"].get("tokens", [])]
    files = {name: text.replace("address: otel-collector.observability:", "address: 127.0.0.1:") for name, text in data.items()}
    if why := why_not_served("serve", "cmp.yaml", files, tokens, ["serving by TLS", "serving probes and metrics"]):
        fault(file, f"`cmp-gateway serve` does not start with its cmp.yaml: {why}")


def check_pod(file, deployment, config, documents):
    """The pod has each folder that cmp.yaml names, may write to one alone, and has time to end."""
    where = f"{relative(file)}: Deployment/{deployment['metadata']['name']}"
    spec = deployment["spec"]
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    plugin = config["plugins"][0]
    named = [config["sockets"], config["work"], plugin["config"], *(dig(plugin, "files", "read") or []), *config["listen"]["tls"].values(),
             *(token["file"] for token in config["listen"].get("tokens", []))]
    for path in named:
        if not any(Path(path).is_relative_to(folder) for folder in mounts):
            fault(where, f"cmp.yaml names {path}, which no volume has")
    work = volumes[mounts[config["work"]]["name"]]
    if not dig(work, "emptyDir", "sizeLimit") or mounts[config["work"]].get("readOnly"):
        fault(where, f"{config['work']} must be an emptyDir with a sizeLimit, and not read-only")
    if {"name": "TMPDIR", "value": config["work"]} not in container["env"]:
        fault(where, f"TMPDIR must be {config['work']}: the rest of the file system is read-only")
    for path, mount in mounts.items():
        if path != config["work"] and not mount.get("readOnly"):
            fault(where, f"{path} must be mounted read-only")
    for token in config["listen"].get("tokens", []):
        name = dig(volumes[mounts["/tokens"]["name"]], "secret", "secretName")
        secret = the(documents, "Secret", name)
        if secret and Path(token["file"]).name not in secret_values(secret):
            fault(where, f"cmp.yaml reads {token['file']}, which Secret/{name} lacks")
    if pod["terminationGracePeriodSeconds"] < (seconds(plugin.get("timeout", "90s")) or 0) + 10:
        fault(where, "terminationGracePeriodSeconds must exceed the longest run by 10 s or more")
    rolling = dig(spec, "strategy", "rollingUpdate")
    if rolling != {"maxUnavailable": 0, "maxSurge": 1} or (spec.get("minReadySeconds") or 0) < 35:
        fault(where, "a new replica must be known to relays before an old one ends: maxUnavailable 0, minReadySeconds 35 or more")


def check_network(file, documents, deployment):
    """The Service is headless, only the repo-server reaches the plugin, and the certificate has the Service's name."""
    name, namespace = deployment["metadata"]["name"], deployment["metadata"]["namespace"]
    if dig(the(documents, "Service", name), "spec", "clusterIP") != "None":
        fault(file, "the Service must be headless, so that relays see each replica")
    for document in documents:
        if document["kind"] == "Certificate" and f"{name}.{namespace}.svc" not in document["spec"]["dnsNames"]:
            fault(file, f"the certificate lacks the name {name}.{namespace}.svc")
        if document["kind"] != "NetworkPolicy":
            continue
        first = document["spec"]["ingress"][0]
        labels = dig(first, "from", 0, "podSelector", "matchLabels")
        if labels != {"app.kubernetes.io/name": "argocd-repo-server"} or not dig(first, "from", 0, "namespaceSelector", "matchLabels"):
            fault(file, "only the repo-server's pods of one namespace may reach the plugin")
        if document["spec"]["policyTypes"] != ["Ingress", "Egress"]:
            fault(file, "the NetworkPolicy must limit both directions")


def check_example():
    """The ApplicationSet that installs kpt has the plugin of the documentation."""
    documents = parse(INSTALLED.read_text(), INSTALLED)
    values = dig(documents, 0, "spec", "template", "spec", "source", "helm", "valuesObject") or {}
    wanted = yaml.safe_load((EXAMPLE / "plugin.yaml").read_text())
    wanted["spec"]["generate"]["command"] = ["/plugin/cmp-generate"]
    if values.get("plugin") != wanted:
        fault(INSTALLED, "its plugin is not that of docs/cmp/examples/kpt, with /plugin/cmp-generate as the command")
    if values.get("scripts") != {"cmp-generate": (EXAMPLE / "cmp-generate").read_text()}:
        fault(INSTALLED, "its script is not that of docs/cmp/examples/kpt")
