"""What deploy/try/kind.sh applies: its manifests, its ApplicationSet, and that the names in the script are those of the files."""

from .applicationsets import check_applicationset
from .charts import GATEWAY
from .faults import DEPLOY, fault
from .pods import pod_of
from .reading import dig, parse
from .schemas import check_schema
from .snapshots import gateway_yaml, snapshot

TRY = DEPLOY / "try"
SCRIPT = TRY / "kind.sh"
VALUES = GATEWAY.folder / "ci/try.yaml"


def check_try(argocd_documents):
    """Checks the manifests like all others, and returns how many documents there are."""
    registry, applicationset = TRY / "registry.yaml", TRY / "applicationset.yaml"
    documents = parse(registry.read_text(), registry)
    sets = parse(applicationset.read_text(), applicationset)
    for file, of in ((registry, documents), (applicationset, sets)):
        for document in of:
            check_schema(file, document)
    text, _ = gateway_yaml(snapshot(GATEWAY, "try"))
    config = dict(*parse(text or "{}", VALUES))
    for document in sets:
        check_applicationset(applicationset, document, config, VALUES, argocd_documents)
    script = SCRIPT.read_text()
    for path in (registry, applicationset, VALUES):
        if str(path.relative_to(DEPLOY.parent)) not in script:
            fault(SCRIPT, f"does not use {path.name}")
    for document in documents:
        for container in (pod_of(document) or {}).get("containers", []):
            image = container["image"].rpartition("/")[2]
            if f"registry={image}\n" not in script:
                fault(SCRIPT, f"loads another image than {image} of {registry.name}")
    host = "{}.{}.svc".format(*(dig(documents[-1], "metadata", key) for key in ("name", "namespace")))
    if f"{host}:{dig(documents[-1], 'spec', 'ports', 0, 'port')}" not in (config.get("registries") or {}):
        fault(VALUES, f"does not ask the registry {host} of {registry.name}")
    return len(documents) + len(sets)
