"""Probes, resources and hardening of pods."""

from .faults import fault, relative
from .reading import dig


def pod_of(workload):
    """The pod's spec of a workload or a Pod; None for any other object."""
    if workload["kind"] == "Pod":
        return workload["spec"]
    pod = dig(workload, "spec", "template", "spec")
    return pod if dig(pod, "containers") else None


def has_rights(documents, account):
    """Whether a service account of this name has a role, so that its pod needs a token."""
    return any(subject["name"] == account for d in documents if d["kind"] in ("RoleBinding", "ClusterRoleBinding")
               for subject in d["subjects"])


def check_pods(folder, workload, documents):
    """Checks probes, resources and hardening."""
    where = f"{relative(folder)}: {workload['kind']}/{workload['metadata']['name']}"
    pod = pod_of(workload)
    needs_token = has_rights(documents, pod.get("serviceAccountName", "default"))
    if pod.get("automountServiceAccountToken") is not needs_token:
        fault(where, f"automountServiceAccountToken must be {str(needs_token).lower()}")

    for container in [*pod.get("initContainers", []), *pod.get("containers", [])]:
        name = f"{where}: container {container['name']}"

        ports = {value for port in container.get("ports", []) for value in (port.get("name"), port["containerPort"])}
        if container not in pod.get("initContainers", []) and workload["kind"] != "Pod":
            for probe in ("livenessProbe", "readinessProbe"):
                if not container.get(probe):
                    fault(name, f"{probe} is missing")
                elif (port := dig(container, probe, "httpGet", "port")) not in ports | {None}:
                    fault(name, f"{probe} asks port {port!r}, which the container does not declare")

        for bound in ("requests", "limits"):
            for resource in ("cpu", "memory"):
                if not dig(container, "resources", bound, resource):
                    fault(name, f"resources.{bound}.{resource} is missing")

        own, shared = container.get("securityContext", {}), pod.get("securityContext", {})
        rules = {
            "readOnlyRootFilesystem must be true": own.get("readOnlyRootFilesystem") is True,
            "allowPrivilegeEscalation must be false": own.get("allowPrivilegeEscalation") is False,
            "capabilities.drop must hold ALL": "ALL" in (dig(own, "capabilities", "drop") or []),
            "runAsNonRoot must be true": own.get("runAsNonRoot", shared.get("runAsNonRoot")) is True,
            "runAsUser must be a number other than 0": bool(own.get("runAsUser", shared.get("runAsUser"))),
            "seccompProfile must be RuntimeDefault":
                dig(own.get("seccompProfile") or shared.get("seccompProfile"), "type") == "RuntimeDefault",
        }
        for rule, kept in rules.items():
            if not kept:
                fault(name, f"securityContext: {rule}")

        claims = dig(workload, "spec", "volumeClaimTemplates") or []
        volumes = {volume["name"] for volume in pod.get("volumes", [])} | {claim["metadata"]["name"] for claim in claims}
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in volumes:
                fault(name, f"there is no volume {mount['name']!r} for {mount['mountPath']}")
            if "subPath" in mount:
                fault(name, f"{mount['mountPath']} is mounted by subPath and would not follow a changed Secret or ConfigMap")
