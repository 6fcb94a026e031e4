"""The gateway has its hooks' secrets and its rights, and an Ingress exposes the hooks alone."""

from .faults import fault
from .reading import dig, secret_values, the


def check_push(root, documents, config, settings):
    """Checks that the gateway has its hooks' secrets and its rights, and that an Ingress exposes the hooks alone."""
    deployment = the(documents, "Deployment", "appset-gateway")
    pod = dig(deployment, "spec", "template", "spec") or {}
    container = dig(pod, "containers", 0) or {}
    port = int(str(dig(config, "server", "hooks")).rpartition(":")[2])
    if port not in {entry["containerPort"] for entry in container.get("ports", []) if entry.get("name") == "hooks"}:
        fault(root / "deployment.yaml", f"the container has no port `hooks` of server.hooks, {port}")
    volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
    mounts = {mount["mountPath"]: volumes.get(mount["name"], {}) for mount in container.get("volumeMounts", [])}
    for hook in config.get("hooks") or []:
        folder, _, key = str(dig(hook.get("secret") or hook.get("token") or hook.get("pathToken"), "file")).rpartition("/")
        secret = secret_values(the(documents, "Secret", dig(mounts.get(folder), "secret", "secretName") or "?"))
        if key not in secret:
            fault(root / "gateway.yaml", f"the hook {hook.get('name')!r} reads {folder}/{key}, which nothing mounts")
    for rule in dig(the(documents, "Ingress", "appset-gateway-hooks"), "spec", "rules") or []:
        for path in dig(rule, "http", "paths") or []:
            service = the(documents, "Service", dig(path, "backend", "service", "name") or "?")
            ports = [entry["port"] for entry in dig(service, "spec", "ports") or []]
            if path.get("path") != "/hooks/" or ports != [port]:
                fault(root / "ingress.yaml", "it must lead from /hooks/ to a Service that has the hooks' port alone")

    refresh = dig(config, "argocd", "refresh") or {}
    if refresh.get("configMaps") != [dig(the(settings, "ConfigMap", "appset-gateway"), "metadata", "name")]:
        fault(root / "gateway.yaml", "argocd.refresh.configMaps must name the ConfigMap of Argo CD's side")
    account = {"kind": "ServiceAccount", "name": pod.get("serviceAccountName"), "namespace": "appset-gateway"}
    rules = [{"apiGroups": ["argoproj.io"], "resources": ["applicationsets"], "verbs": ["list", "patch"]},
             {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}]
    for namespace in refresh.get("namespaces") or []:
        found = [d for d in documents if d["metadata"].get("namespace") == namespace and d["metadata"]["name"] == "appset-gateway-refresh"]
        kinds = {d["kind"]: d for d in found}
        if dig(kinds.get("Role"), "rules") != rules or dig(kinds.get("RoleBinding"), "subjects") != [account]:
            fault(root / "rbac.yaml", f"the gateway's account must have exactly the rights to list and patch ApplicationSets and to write "
                                      f"Events in {namespace}")
    policy = the(documents, "ValidatingAdmissionPolicy", "appset-gateway-refresh")
    condition = dig(policy, "spec", "matchConditions", 0, "expression") or ""
    if f"'system:serviceaccount:{account['namespace']}:{account['name']}'" not in condition:
        fault(root / "policy.yaml", "it does not match the gateway's service account")
    if dig(the(documents, "ValidatingAdmissionPolicyBinding", "appset-gateway-refresh"), "spec", "validationActions") != ["Deny"]:
        fault(root / "policy.yaml", "its binding must deny")
