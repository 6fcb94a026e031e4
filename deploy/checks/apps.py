"""The objects that let Argo CD install a chart: their schema, the chart's path, and the values that they give it."""

import json
import re

import jsonschema
import yaml

from .charts import GATEWAY, PLUGIN
from .faults import DEPLOY, ROOT, fault
from .reading import dig, parse
from .schemas import check_schema
from .snapshots import merged

APPS = ((DEPLOY / "argocd-apps", GATEWAY), (DEPLOY / "examples/kpt", PLUGIN))


def check_apps():
    for folder, chart in APPS:
        check_folder(folder, chart)


def check_folder(folder, chart):
    files = sorted(folder.glob("*.yaml"))
    documents = {file: parse(file.read_text(), file) for file in files}
    projects = {d["metadata"]["name"]: d for of in documents.values() for d in of if d["kind"] == "AppProject"}
    for file, of in documents.items():
        for document in of:
            check_schema(file, document)
            if document["kind"] in ("Application", "ApplicationSet"):
                check_application(file, document, projects, chart)


def check_application(file, document, projects, chart):
    """Checks what an Application, or an ApplicationSet's template, installs."""
    spec = dig(document, "spec", "template", "spec") or document["spec"]
    project = projects.get(spec["project"])
    if project is None:
        return fault(file, f"there is no AppProject {spec['project']} in this folder")
    source = spec.get("source") or {}
    if source.get("repoURL") not in dig(project, "spec", "sourceRepos"):
        fault(file, f"the AppProject {spec['project']} does not allow {source.get('repoURL')}")
    if ROOT / str(source.get("path")) != chart.folder:
        fault(file, f"source.path is {source.get('path')}, the chart is in {chart.folder.relative_to(ROOT)}")
    given = dig(source, "helm", "valuesObject") or {}
    check_values(file, given, chart)
    check_project(file, project, given)


def check_values(file, given, chart):
    schema = json.loads((chart.folder / "values.schema.json").read_text())
    # What an ApplicationSet's template fills in is text of any form.
    given = json.loads(re.sub(r"\{\{.*?\}\}", "x", json.dumps(given)))
    values = merged(yaml.safe_load((chart.folder / "values.yaml").read_text()), given)
    for error in jsonschema.Draft7Validator(schema).iter_errors(values):
        fault(file, f"valuesObject: {'.'.join(str(step) for step in error.absolute_path)}: {error.message[:300]}")


def check_project(file, project, given):
    """Checks that the project allows the kinds without a namespace that these values create."""
    allowed = {entry["kind"] for entry in dig(project, "spec", "clusterResourceWhitelist") or []}
    wanted = {"Namespace"}
    if dig(given, "refresh", "enabled"):
        wanted |= {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    if dig(given, "tokenReview", "enabled"):
        wanted |= {"ClusterRoleBinding"}
    if dig(given, "kubernetes", "resources") and not dig(given, "kubernetes", "namespaces"):
        wanted |= {"ClusterRole", "ClusterRoleBinding"}
    if missing := wanted - allowed:
        fault(file, f"the AppProject {project['metadata']['name']} does not allow {sorted(missing)}")
