"""The names and labels by which one object of a rendered set refers to another."""

from .faults import fault, relative
from .reading import dig


def check_references(folder, documents, elsewhere=()):
    """Checks the names and labels by which one object refers to another. Objects with a name in `elsewhere` may exist already."""
    names = {(d["kind"], d["metadata"]["name"]) for d in documents}
    deployments = [d for d in documents if d["kind"] in ("Deployment", "StatefulSet")]

    for deployment in deployments:
        where = f"{relative(folder)}: {deployment['kind']}/{deployment['metadata']['name']}"
        pod = dig(deployment, "spec", "template", "spec")
        account = pod.get("serviceAccountName", "default")
        pointers = [("ServiceAccount", account, account == "default")]
        for volume in pod.get("volumes", []):
            for source in [volume, *(dig(volume, "projected", "sources") or [])]:
                if secret := source.get("secret"):
                    pointers.append(("Secret", secret.get("secretName", secret.get("name")), secret.get("optional")))
                if config := source.get("configMap"):
                    pointers.append(("ConfigMap", config["name"], config.get("optional")))
                if claim := source.get("persistentVolumeClaim"):
                    pointers.append(("PersistentVolumeClaim", claim["claimName"], False))
        for kind, name, optional in pointers:
            if (kind, name) not in names and name not in elsewhere and not optional:
                fault(where, f"refers to {kind}/{name}, which does not exist")

    selectors = {
        "Deployment": ("spec", "selector", "matchLabels"),
        "StatefulSet": ("spec", "selector", "matchLabels"),
        "Service": ("spec", "selector"),
        "PodDisruptionBudget": ("spec", "selector", "matchLabels"),
        "NetworkPolicy": ("spec", "podSelector", "matchLabels"),
    }
    for document in documents:
        if path := selectors.get(document["kind"]):
            wanted = dig(document, *path) or {}
            matching = [d for d in deployments if wanted.items() <= dig(d, "spec", "template", "metadata", "labels").items()]
            where = f"{relative(folder)}: {document['kind']}/{document['metadata']['name']}"
            if not wanted or not matching:
                fault(where, f"{'.'.join(path)} selects no pod of this kustomization")
                continue
            ports = {port for d in matching for c in dig(d, "spec", "template", "spec", "containers")
                     for entry in c.get("ports", []) for port in (entry.get("name"), entry["containerPort"])}
            for port in (dig(document, "spec", "ports") or []) if document["kind"] == "Service" else []:
                if port.get("targetPort", port["port"]) not in ports:
                    fault(where, f"port {port['port']} leads to {port.get('targetPort')!r}, which no container declares")
    check_monitors(folder, documents, deployments)


def check_monitors(folder, documents, deployments):
    """Checks that a monitor selects something that has the port."""
    for document in documents:
        if document["kind"] not in ("ServiceMonitor", "PodMonitor"):
            continue
        where = f"{relative(folder)}: {document['kind']}/{document['metadata']['name']}"
        wanted = dig(document, "spec", "selector", "matchLabels") or {}
        if document["kind"] == "ServiceMonitor":
            matching = [d for d in documents if d["kind"] == "Service" and wanted.items() <= d["metadata"]["labels"].items()]
            ports = [{entry["name"] for entry in d["spec"]["ports"]} for d in matching]
        else:
            matching = [dig(d, "spec", "template") for d in deployments]
            matching = [pod for pod in matching if wanted.items() <= pod["metadata"]["labels"].items()]
            ports = [{entry["name"] for c in pod["spec"]["containers"] for entry in c.get("ports", [])} for pod in matching]
        if len(matching) != 1:
            fault(where, f"its selector selects {len(matching)} objects; it must be one")
        for endpoint in document["spec"].get("endpoints") or document["spec"].get("podMetricsEndpoints"):
            if not all(endpoint["port"] in of for of in ports):
                fault(where, f"its endpoint's port {endpoint['port']} does not exist")
