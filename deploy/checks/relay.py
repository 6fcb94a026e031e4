"""The relay beside Argo CD's repo-server: as a patch of Argo CD's own manifests, and as values of argo-helm's chart."""

import shutil
import tempfile
from pathlib import Path

import yaml

from .faults import DEPLOY, fault
from .pods import check_pods
from .programs import why_not_served
from .reading import dig, parse, render, the
from .schemas import KUBERNETES, check_schema
from .services import INSTALLED

RELAY = DEPLOY / "cmp/relay"
CERTIFICATES = DEPLOY / "cmp/certificates"
VALUES = RELAY / "argo-helm-values.yaml"
SOCKETS = "/home/argocd/cmp-server/plugins"

# What the patch meets in Argo CD's manifests: the names of the containers, and the volume of sockets.
REPO_SERVER = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "argocd-repo-server", "labels": {"app.kubernetes.io/name": "argocd-repo-server"}},
    "spec": {
        "selector": {"matchLabels": {"app.kubernetes.io/name": "argocd-repo-server"}},
        "template": {
            "metadata": {"labels": {"app.kubernetes.io/name": "argocd-repo-server"}},
            "spec": {
                "automountServiceAccountToken": False,
                "initContainers": [{"name": "copyutil", "image": "argocd"}],
                "containers": [{"name": "argocd-repo-server", "image": "argocd", "ports": [{"containerPort": 8081}, {"containerPort": 8084}],
                                "volumeMounts": [{"name": "plugins", "mountPath": SOCKETS}]}],
                "volumes": [{"name": "plugins", "emptyDir": {}}],
            },
        },
    },
}


def patched():
    """The repo-server with the component, as deploy/README.md says."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        shutil.copytree(RELAY, folder / "relay")
        (folder / "base.yaml").write_text(yaml.safe_dump(REPO_SERVER))
        whole = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": "argocd",
            "resources": ["base.yaml", "podmonitor.yaml"],
            "components": ["relay"],
        }
        shutil.copy(RELAY / "podmonitor.yaml", folder)
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(whole))
        return render(folder)


def check_relay():
    """Checks both forms. Returns how many documents there are."""
    documents = patched()
    certificates = render(CERTIFICATES)
    for document in documents:
        # The oldest version has no native sidecars.
        check_schema(RELAY, document, KUBERNETES[1:] if document["kind"] == "Deployment" else KUBERNETES)
    for document in certificates:
        check_schema(CERTIFICATES, document)
    pod = dig(the(documents, "Deployment", "argocd-repo-server"), "spec", "template", "spec") or {}
    container = next((one for one in pod.get("initContainers", []) if one["name"] == "cmp-relay"), None)
    if container is None:
        fault(RELAY, "the repo-server has no init container cmp-relay")
        return 0
    check_container(pod, container, documents)
    check_config(pod, container, documents, certificates)
    check_values(pod, container)
    return len(documents) + len(certificates)


def check_container(pod, container, documents):
    """It is a hardened native sidecar, with the socket folder of the repo-server and a folder of its own."""
    alone = {**REPO_SERVER, "spec": {"template": {"spec": {**pod, "containers": [container], "initContainers": []}}}}
    check_pods(RELAY, alone, documents)
    if container.get("restartPolicy") != "Always" or dig(container, "startupProbe", "httpGet", "path") != "/readyz":
        fault(RELAY, "the relay must be a native sidecar with a startupProbe: its sockets must be there before the repo-server starts")
    server = pod["containers"][0]
    shared = [next(mount["name"] for mount in one["volumeMounts"] if mount["mountPath"] == SOCKETS) for one in (server, container)]
    if shared[0] != shared[1]:
        fault(RELAY, f"the relay and the repo-server must share the volume of {SOCKETS}")
    taken = {port["containerPort"] for port in server["ports"]}
    if taken & {port["containerPort"] for port in container["ports"]}:
        fault(RELAY, "the relay's port is one of the repo-server's, which are in the same pod")
    names = {(d["kind"], d["metadata"]["name"]) for d in documents} | {("Secret", d["spec"]["secretName"]) for d in documents if d["kind"] == "Certificate"}
    for volume in pod["volumes"]:
        if config := dig(volume, "configMap", "name"):
            names_it = ("ConfigMap", config)
        elif secret := dig(volume, "secret", "secretName"):
            names_it = ("Secret", secret)
        else:
            continue
        if names_it not in names:
            fault(RELAY, f"volume {volume['name']} needs {'/'.join(names_it)}, which nothing makes")
    for mount in container["volumeMounts"]:
        if mount["mountPath"] not in (SOCKETS, "/work") and not mount.get("readOnly"):
            fault(RELAY, f"{mount['mountPath']} must be mounted read-only")


def check_config(pod, container, documents, certificates):
    """cmp-gateway serves relay.yaml; the spool fits its folder; the policy has the admin port; kpt is where the example installs it."""
    text = dig(the(documents, "ConfigMap", "cmp-relay"), "data", "relay.yaml") or "{}"
    config = yaml.safe_load(text)
    if why := why_not_served("relay", "relay.yaml", {"relay.yaml": text}, [], ["serving probes and metrics", "kpt-v1.0.sock"]):
        fault(RELAY / "relay.yaml", f"`cmp-gateway relay` does not start with it: {why}")
    limit = next(dig(volume, "emptyDir", "sizeLimit") for volume in pod["volumes"] if volume["name"] == "cmp-relay-work") or "0Gi"
    if int(limit.removesuffix("Gi")) <= int(config["spool"].removesuffix("GiB")):
        fault(RELAY, f"the folder of the spool may take {limit}, which is not more than `spool` {config['spool']}")
    port = int(config["admin"].rpartition(":")[2])
    policy = the(documents, "NetworkPolicy", "cmp-relay")
    if port not in {one["containerPort"] for one in container["ports"]} or dig(policy, "spec", "ingress", 0, "ports", 0, "port") != port:
        fault(RELAY, f"relay.yaml has the admin port {port}: the container and the NetworkPolicy must have it too")
    issuers = {(d["kind"], d["metadata"]["name"]) for d in certificates}
    installed = parse(INSTALLED.read_text(), INSTALLED)[0]["spec"]["template"]["spec"]
    values = installed["source"]["helm"]["valuesObject"]
    for reference in (dig(the(documents, "Certificate", "cmp-relay-tls"), "spec", "issuerRef"), values["tls"]["certManager"]["issuerRef"]):
        if (reference["kind"], reference["name"]) not in issuers:
            fault(RELAY, f"the issuer {reference} is not in deploy/cmp/certificates")
    remote = config["remotes"][0]
    plugin = values["plugin"]
    address = f"{installed['source']['helm']['releaseName']}.{installed['destination']['namespace']}.svc:8443"
    wanted = (plugin["metadata"]["name"], plugin["spec"]["version"], plugin["spec"]["discover"], address)
    if tuple(remote.get(key) for key in ("name", "version", "discover", "address")) != wanted:
        fault(RELAY / "relay.yaml", f"its remote is not what {INSTALLED.name} installs: {wanted}")


def check_values(pod, container):
    """The values for argo-helm have the same container, the same volumes and the same objects as the component."""
    values = dict(*parse(VALUES.read_text(), VALUES))
    own = [volume for volume in pod["volumes"] if volume["name"].startswith("cmp-relay")]
    if dig(values, "repoServer", "initContainers") != [container] or sorted_by_name(dig(values, "repoServer", "volumes")) != sorted_by_name(own):
        fault(VALUES, "its init container or volumes are not those of repo-server.yaml")
    component = dict(*parse((RELAY / "kustomization.yaml").read_text(), RELAY))
    wanted = [dict(*parse((RELAY / file).read_text(), RELAY / file)) for file in component["resources"]]
    wanted.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cmp-relay"}, "data": {"relay.yaml": (RELAY / "relay.yaml").read_text()}})
    given = values.get("extraObjects") or []
    if len(given) != len(wanted) or not all(one in given for one in wanted):
        fault(VALUES, "its extraObjects are not the files of this folder")
    if "{{" in VALUES.read_text():
        fault(VALUES, "argo-helm's chart would render a template in it")


def sorted_by_name(objects):
    return sorted(objects or [], key=lambda one: one["name"])
