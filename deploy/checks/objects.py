"""A gateway that reads objects of clusters has a token, and rights to list and nothing else."""

from .faults import fault
from .reading import dig, the


def check_objects(root, documents):
    """Checks that the gateway's account may list, and do nothing else, and that its pod has a token."""
    pod = dig(the(documents, "Deployment", "appset-gateway"), "spec", "template", "spec") or {}
    if pod.get("automountServiceAccountToken") is not True:
        fault(root / "deployment.yaml", "the pod must have the token of its service account")
    account = {"kind": "ServiceAccount", "name": pod.get("serviceAccountName"), "namespace": "appset-gateway"}
    roles = [document for document in documents if document["kind"] in ("Role", "ClusterRole")]
    if not roles:
        fault(root / "rbac.yaml", "there is no role")
    for role in roles:
        name = role["metadata"]["name"]
        for rule in role["rules"]:
            if rule["verbs"] != ["list"] or "*" in rule["resources"] + rule["apiGroups"]:
                fault(root / "rbac.yaml", f"{role['kind']} {name}: the gateway needs to list resources by their names, and no other right")
        binding = the(documents, f"{role['kind']}Binding", name)
        is_same = binding.get("subjects") == [account] and dig(binding, "roleRef", "name") == name
        if not is_same or dig(binding, "metadata", "namespace") != role["metadata"].get("namespace"):
            fault(root / "rbac.yaml", f"{role['kind']} {name}: no binding gives it to the gateway's account, and to nobody else")
        if "secrets" in [resource for rule in role["rules"] for resource in rule["resources"]] and role["kind"] != "Role":
            fault(root / "rbac.yaml", f"{role['kind']} {name}: the Secrets of all namespaces are not Argo CD's clusters")
