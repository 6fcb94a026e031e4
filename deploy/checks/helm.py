"""What only Helm can tell: that the chart renders its snapshots, and refuses wrong values with a message that says why."""

import os
import re
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from .faults import ROOT, cannot_run, fault
from .generated import CHART, HELM
from .snapshots import DIGEST, RENDERED, digest, names, schema_errors, values

TOOLS = ROOT / "target/tools/bin"
NAME = "appset-gateway"  # of the release and of its namespace
KUBERNETES = "1.37.0"


def run(program, *arguments):
    """Runs Helm without any of the user's settings, and without a cluster."""
    path = TOOLS / program
    if not path.exists():
        cannot_run(f"no {program} at {path}; build it with: tools/need-helm")
    with tempfile.TemporaryDirectory() as home:
        environment = {"PATH": os.environ["PATH"], "HOME": home, "KUBECONFIG": f"{home}/none"}
        return subprocess.run([path, *arguments], capture_output=True, text=True, env=environment, cwd=ROOT)


def render(file, kubernetes=KUBERNETES):
    return run("helm", "template", NAME, str(CHART), "--namespace", NAME, "--kube-version", kubernetes, "--values", str(file))


def all_rendered():
    """Each name in ci/ with what Helm makes of it."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(zip(names(), pool.map(lambda name: render(CHART / f"ci/{name}.yaml"), names())))


def write_snapshots():
    RENDERED.mkdir(exist_ok=True)
    for file in RENDERED.glob("*.yaml"):
        file.unlink()
    for name, result in all_rendered():
        if result.returncode != 0:
            fault(CHART / f"ci/{name}.yaml", f"does not render: {result.stderr.strip()}")
        (RENDERED / f"{name}.yaml").write_text(result.stdout)
    DIGEST.write_text(digest())


def check_snapshots():
    for name, result in all_rendered():
        file = RENDERED / f"{name}.yaml"
        if result.returncode != 0:
            fault(CHART / f"ci/{name}.yaml", f"does not render: {result.stderr.strip()}")
        elif not file.exists() or file.read_text() != result.stdout:
            fault(file, "is not what Helm renders now: run `make chart-files`, and look at the difference")
    return len(names())


def lint():
    for name in names():
        result = run("helm", "lint", str(CHART), "--strict", "--quiet", "--kube-version", KUBERNETES, "--values", str(CHART / f"ci/{name}.yaml"))
        if result.returncode != 0:
            fault(CHART / f"ci/{name}.yaml", f"helm lint: {result.stdout.strip()} {result.stderr.strip()}")


def unit_tests():
    result = run("helm-unittest", "--strict", str(CHART))
    print(result.stdout.strip())
    if result.returncode != 0:
        fault(CHART / "tests", f"helm-unittest failed: {result.stderr.strip()}")


def check_refused():
    """Tries each entry of refused.yaml. Returns how many there are."""
    file = HELM / "refused.yaml"
    entries = yaml.safe_load(file.read_text())
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        messages = list(pool.map(refusal, entries))
    for entry, message in zip(entries, messages):
        if problem := wrong_refusal(entry, message):
            fault(file, f"{entry['values']} {problem}")
    reasons = re.findall(r"fail (?:\(printf )?\"(.*?)\"[ )]", (CHART / "templates/_checks.tpl").read_text())
    for reason in reasons:
        pattern = re.sub(r"%[sd]", ".*", re.escape(reason).replace("\\%", "%"))
        if not any(message and re.search(pattern, message) for message in messages):
            fault(file, f"nothing here is refused because `{reason}`")
    return len(entries)


def given(entry):
    return {"token": {"value": "one"}, "adminToken": {"value": "two"}, **entry["values"]}


def refusal(entry):
    """Why Helm refuses these values; None if it does not."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(given(entry), file)
        file.flush()
        result = render(Path(file.name), entry.get("kubernetes", KUBERNETES))
    return " ".join(result.stderr.split()) if result.returncode != 0 else None


def wrong_refusal(entry, message):
    """What is wrong with a refusal; None if it is as the entry says."""
    if message is None:
        return "is not refused"
    if entry["says"] not in message:
        return f"is refused without `{entry['says']}`: {message}"
    by_schema = bool(schema_errors(values(yaml.safe_dump(given(entry)))))
    if by_schema is not entry.get("schema", False):
        return "must say by `schema` whether values.schema.json refuses it"
    return None


def package():
    """Helm can package the chart; the package has neither value files of the check nor tests."""
    with tempfile.TemporaryDirectory() as folder:
        result = run("helm", "package", str(CHART), "--destination", folder)
        if result.returncode != 0:
            return fault(CHART, f"helm package: {result.stderr.strip()}")
        files = subprocess.run(["tar", "tzf", *Path(folder).glob("*.tgz")], capture_output=True, text=True, check=True).stdout.split()
    for file in files:
        if file.startswith((f"{NAME}/ci/", f"{NAME}/tests/")):
            fault(CHART / ".helmignore", f"the package has {file}")
    for needed in ("values.schema.json", "files/rules.yaml", "files/cmp-rules.yaml", "files/dashboard.json", "templates/tests/ask.yaml", "README.md"):
        if f"{NAME}/{needed}" not in files:
            fault(CHART, f"the package lacks {needed}")
