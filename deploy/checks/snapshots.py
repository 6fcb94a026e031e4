"""The snapshots in deploy/helm/rendered: each chart as Helm rendered it for each file in its ci/. They are checked without Helm."""

import hashlib
import json
import os
import subprocess
import tempfile
from pathlib import Path

import jsonschema
import yaml

from .charts import CHARTS, GATEWAY
from .comparison import check_comparison
from .faults import ROOT, cannot_run, fault, relative
from .generated import check_generated
from .pods import check_pods, pod_of
from .reading import dig, parse
from .references import check_references
from .schemas import check_schema
from .services import check_service

# What Helm reads when it renders. The schema only decides whether it does.
INPUTS = ("Chart.yaml", "values.yaml", "templates/**/*", "files/**/*", "ci/*.yaml")


def digest(chart):
    """A hash of all that Helm reads, so that a changed chart is noticed without Helm."""
    files = sorted(file for pattern in INPUTS for file in chart.folder.glob(pattern) if file.is_file() and file.name != "NOTES.txt")
    of = hashlib.sha256()
    for file in files:
        of.update(f"{file.relative_to(chart.folder)}\n{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return of.hexdigest() + "\n"


def merged(below, above):
    """Values as Helm merges them: maps key by key, a null removes a key."""
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    both = {key: merged(below[key], above[key]) if key in below and key in above else above.get(key, below.get(key)) for key in {**below, **above}}
    return {key: value for key, value in both.items() if value is not None}


def values(chart, text):
    return merged(yaml.safe_load((chart.folder / "values.yaml").read_text()), yaml.safe_load(text) or {})


def schema_errors(chart, of):
    """What values.schema.json says of these values."""
    schema = json.loads((chart.folder / "values.schema.json").read_text())
    return [f"{'.'.join(str(step) for step in error.absolute_path) or '(top)'}: {error.message[:300]}"
            for error in jsonschema.Draft7Validator(schema).iter_errors(of)]


def texts(value):
    """All texts in a value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return {text for inner in value for text in texts(inner)}
    return {value} if isinstance(value, str) else set()


def check_snapshots(kustomizations):
    """Checks all snapshots, and those that have a kustomization for the same wishes against it. Returns how many there are."""
    for chart in CHARTS:
        check_chart(chart)
    check_comparison(kustomizations, lambda name: snapshot(GATEWAY, name))
    return sum(len(chart.names()) for chart in CHARTS)


def check_chart(chart):
    check_generated(chart)
    names = chart.names()
    if len(names) < chart.least:
        fault(chart.folder / "ci", f"needs {chart.least} value files or more")
    if not chart.digest.exists() or chart.digest.read_text() != digest(chart):
        fault(chart.rendered, "the chart was changed since Helm rendered these files: run `make chart-files`, and look at the difference")
    for file in chart.rendered.glob("*.yaml"):
        if file.stem not in names:
            fault(file, "there is no such file in ci/")
    for name in names:
        check_snapshot(chart, name)


def snapshot(chart, name):
    file = chart.rendered / f"{name}.yaml"
    return parse(file.read_text(), file) if file.exists() else []


def check_snapshot(chart, name):
    source, file = chart.folder / f"ci/{name}.yaml", chart.rendered / f"{name}.yaml"
    given = values(chart, source.read_text())
    for error in schema_errors(chart, given):
        fault(source, error)
    documents = snapshot(chart, name)
    if not documents:
        return fault(file, "is missing or empty")
    for document in documents:
        check_schema(file, document)
        if pod_of(document):
            check_pods(file, document, documents)
    identities = [(d["kind"], dig(d, "metadata", "namespace"), d["metadata"]["name"]) for d in documents]
    for identity in {one for one in identities if identities.count(one) > 1}:
        fault(file, f"has {identity} twice")
    # cert-manager makes the Secrets that its Certificates name.
    made = {d["spec"]["secretName"] for d in documents if d["kind"] == "Certificate"}
    check_references(file, documents, texts(given) | made)
    if chart == GATEWAY:
        check_configuration(file, documents)
    else:
        check_service(file, documents)


def gateway_yaml(documents):
    """The ConfigMap's gateway.yaml, and the scripts that the pod would see."""
    maps = [d["data"] for d in documents if d["kind"] == "ConfigMap" and dig(d, "metadata", "labels", "app.kubernetes.io/component") == "config"]
    config = next((data["gateway.yaml"] for data in maps if "gateway.yaml" in data), None)
    return config, {name: text for data in maps if "gateway.yaml" not in data for name, text in data.items()}


def program():
    """The gateway's program."""
    path = Path(os.environ.get("GATEWAY") or ROOT / "target/debug/appset-gateway")
    if not path.exists():
        cannot_run(f"no gateway at {path}; build it with: cargo build")
    return path


def check_configuration(file, documents):
    """The gateway itself checks the rendered configuration."""
    config, scripts = gateway_yaml(documents)
    if config is None:
        return fault(file, "has no ConfigMap with gateway.yaml")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in scripts.items():
            (Path(folder) / name).write_text(text)
        path = Path(folder) / "gateway.yaml"
        # `--no-secrets` reads the store's CA nevertheless.
        path.write_text(config.replace("/plugins/", f"{folder}/").replace("ca: /var/run/store-ca/ca.crt\n", "\n"))
        result = subprocess.run([program(), "check", "--no-secrets", "-c", path], capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})
    if result.returncode != 0:
        fault(relative(file), f"`appset-gateway check --no-secrets` refuses its gateway.yaml:\n{result.stdout}{result.stderr}")
