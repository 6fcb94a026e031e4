"""The gateway remembers: several replicas in a store, a single one on a volume that outlives the pod."""

import re
from pathlib import Path

from .faults import ROOT, fault
from .reading import dig, seconds, secret_values, the


def check_memory(root, documents, deployment, config, mounts):
    """Checks that the gateway remembers: several replicas in a store, a single one on a volume that outlives the pod."""
    where, spec = root / "deployment.yaml", deployment.get("spec") or {}
    pod = dig(spec, "template", "spec") or {}
    if dig(config, "cache", "shared"):
        return check_store(root, documents, deployment, config, mounts)
    if spec.get("replicas") != 1:
        fault(where, f"replicas is {spec.get('replicas')}; it must be 1: gateways with a file each answer differently while a source shrinks")
    if spec.get("strategy") != {"type": "Recreate"}:
        fault(where, "strategy must be Recreate: only one process can open the file of answers")
    for document in documents:
        target = dig(document, "spec", "scaleTargetRef", "name")
        if document["kind"] == "HorizontalPodAutoscaler" and target == deployment["metadata"]["name"]:
            fault(root, f"HorizontalPodAutoscaler/{document['metadata']['name']} would start a second gateway")
        if document["kind"] == "PodDisruptionBudget" and not allows_eviction(document["spec"]):
            fault(root, f"PodDisruptionBudget/{document['metadata']['name']} never lets the only pod be evicted, so no node can be drained")

    path = dig(config, "cache", "path")
    if not path:
        return fault(root / "gateway.yaml", "cache.path is missing: a rollout would forget all answers")
    mount = next((mounts[str(folder)] for folder in Path(path).parents if str(folder) in mounts), {})
    claim = the(documents, "PersistentVolumeClaim", dig(mount, "persistentVolumeClaim", "claimName") or "?")
    if not claim:
        return fault(where, f"cache.path is {path}, which lies on no PersistentVolumeClaim of this kustomization: a rollout would forget all answers")
    if not set(dig(claim, "spec", "accessModes") or []) <= {"ReadWriteOnce", "ReadWriteOncePod"}:
        fault(root / "volume.yaml", "accessModes must be ReadWriteOnce or ReadWriteOncePod: one gateway to a file")
    for container in pod.get("containers", []):
        for mounted in container.get("volumeMounts", []):
            if mounted["name"] == mount["name"] and mounted.get("readOnly"):
                fault(where, f"{mounted['mountPath']} is read-only, and cache.path lies there")
    if dig(pod, "securityContext", "fsGroup") != dig(pod, "securityContext", "runAsGroup"):
        fault(where, "securityContext.fsGroup must be runAsGroup, else the gateway cannot write to the volume")


def allows_eviction(budget):
    """Whether a PodDisruptionBudget allows the eviction of a Deployment's only pod."""
    most, least = budget.get("maxUnavailable"), budget.get("minAvailable")
    if most is not None:
        return most not in (0, "0%")  # a percentage is rounded up
    return least in (None, 0, "0%")


def check_store(root, documents, deployment, config, mounts):
    """Checks that replicas and their store fit each other, and that a rollout is noticed by nobody."""
    where, spec, shared = root / "deployment.yaml", deployment["spec"], config["cache"]["shared"]
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    if spec.get("strategy") != rolling:
        fault(where, f"strategy must be {rolling}: a new replica is ready before an old one ends")
    if not dig(spec, "template", "spec", "containers", 0, "startupProbe", "httpGet", "path") == "/startupz":
        fault(where, "startupProbe must ask /startupz: a new replica knows nothing before its first contact with the store")
    if (seconds(dig(config, "server", "drain")) or 0) < 5:
        fault(root / "gateway.yaml", "server.drain must be 5s or more: nodes need that time to learn that a pod ends")
    if not spec.get("replicas", 1) > 1:
        fault(where, "one replica needs no store")
    for document in documents:
        if document["kind"] == "PodDisruptionBudget" and dig(document, "spec", "maxUnavailable") in (None, 0, "0%"):
            fault(root, f"PodDisruptionBudget/{document['metadata']['name']} needs maxUnavailable: 1 or more, so that nodes can be drained")

    host, _, port = re.sub(r"^rediss?://|/\d+$", "", str(shared.get("url"))).partition(":")
    service = the(documents, "Service", host)
    if port not in {str(entry["port"]) for entry in dig(service, "spec", "ports") or []}:
        return fault(root / "gateway.yaml", f"cache.shared.url names {host}:{port}, which no Service of this kustomization has")
    store = the(documents, "StatefulSet", host)
    arguments = dig(store, "spec", "template", "spec", "containers", 0, "args") or []
    for key, value in (("--appendonly", "yes"), ("--maxmemory-policy", "noeviction"), ("--aclfile", "/etc/valkey/users.acl")):
        if key not in arguments or arguments[arguments.index(key) + 1] != value:
            fault(root / "valkey.yaml", f"the store's arguments must have {key} {value}")

    folder, _, key = str(dig(shared, "password", "file")).rpartition("/")
    secret = secret_values(the(documents, "Secret", dig(mounts.get(folder), "secret", "secretName") or "?"))
    if key not in secret:
        return fault(root / "gateway.yaml", f"the store's password is read from {folder}/{key}, which nothing mounts")
    documented = re.search(r"^ACL SETUSER (gateway on .*)$", (ROOT / "docs/replicas.md").read_text(), re.MULTILINE)[1]
    wanted = ["user default off", "user " + documented.replace(">password", ">" + secret[key])]
    if secret.get("users.acl", "").splitlines() != wanted:
        fault(root / "secret.yaml", "users.acl must switch the default user off, and give the user `gateway` this password and the rights "
                                    "in docs/replicas.md")
