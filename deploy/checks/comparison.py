"""kustomize and the chart render the same objects for the same wishes. What differs on purpose is in `INTENDED`, with the reason."""

import fnmatch
import json

import yaml

from .faults import DEPLOY, fault
from .reading import dig

# Labels of every object that only Helm needs, or that the kustomizations have on the Deployment alone.
LABELS = ("helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version")

# (objects as kind/namespace/name, paths, reason). `*` stands for anything.
INTENDED = [
    ("Namespace//*", "(object)", "a chart does not create the namespace that it is installed into: `--create-namespace` does"),
    ("*/*/appset-gateway-test", "(object)", "`helm test` has no counterpart in kustomize"),
    ("NetworkPolicy/*/appset-gateway", "spec.ingress[[]{*kubernetes.io/component\": \"test\"*", "lets the pod of `helm test` ask"),
    ("*/argocd/appset-gateway", "metadata.labels.*", "Helm's objects say of which release they are"),
    ("Deployment/*", "*volumes[[]config].projected.sources*", "a Secret that the values name must exist; that of kustomize may"),
    ("PersistentVolumeClaim/*", "metadata.annotations.*", "an uninstall by Helm or Argo CD would else forget all answers"),
    ("ServiceMonitor/*", "spec.selector.matchLabels.app.kubernetes.io/instance", "a namespace may have several releases"),
    ("Deployment/*", "spec.replicas", "with an autoscaler, each `helm upgrade` would set the number back"),
]


def check_comparison(kustomizations, snapshot):
    """Compares each kustomization with the snapshot of the same name."""
    used = set()
    for name, documents in kustomizations.items():
        used |= compare(name, by_identity(documents), by_identity(snapshot(name)))
    for objects, paths, reason in INTENDED:
        if (objects, paths) not in used:
            fault(DEPLOY / "checks/comparison.py", f"INTENDED has {objects} {paths} ({reason}), but nothing differs there")


def compare(name, ours, charts):
    """Notes what differs. Returns the intended differences that were met."""
    used = set()
    for identity in sorted(set(ours) | set(charts)):
        left, right = flat(ours.get(identity)), flat(charts.get(identity))
        if not left or not right:  # one difference, not one for each path
            left, right = {"(object)": bool(left)}, {"(object)": bool(right)}
        for path in sorted(set(left) | set(right)):
            if left.get(path) == right.get(path):
                continue
            entry = next(((objects, paths) for objects, paths, _ in INTENDED
                          if fnmatch.fnmatchcase(identity, objects) and fnmatch.fnmatchcase(path, paths)), None)
            if entry is None:
                fault(DEPLOY / "kustomize" / name, f"{identity}: {path} is {left.get(path)} here, and {right.get(path)} in the chart's "
                                                   f"rendered/{name}.yaml")
            used.add(entry)
    return used


def by_identity(documents):
    return {f"{d['kind']}/{dig(d, 'metadata', 'namespace') or ''}/{d['metadata']['name']}": d for d in documents}


def flat(value, path=""):
    """All values below `value` by their path. Items of a list are known by their name or their content, not by their position."""
    if value is None:
        return {}
    if isinstance(value, dict):
        inner = {key: item for key, item in value.items() if key not in LABELS or not path.endswith("labels")}
        return {k: v for key, item in inner.items() for k, v in flat(item, f"{path}.{key}" if path else key).items()}
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return {k: v for item in value for k, v in flat_item(item, path).items()}
    if path == "data.gateway.yaml":
        return flat(yaml.safe_load(value), "gateway.yaml")
    return {path: value}


def flat_item(item, path):
    if "name" in item:
        return flat(item, f"{path}[{item['name']}]")
    return {f"{path}[{json.dumps(item, sort_keys=True)}]": True}
