"""What only Helm can tell: that a chart renders its snapshots, and refuses wrong values with a message that says why."""

import os
import re
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from .faults import ROOT, cannot_run, fault
from .snapshots import digest, schema_errors, values

TOOLS = ROOT / "target/tools/bin"
KUBERNETES = "1.37.0"


def run(program, *arguments):
    """Runs Helm without any of the user's settings, and without a cluster."""
    path = TOOLS / program
    if not path.exists():
        cannot_run(f"no {program} at {path}; build it with: tools/need-helm")
    with tempfile.TemporaryDirectory() as home:
        environment = {"PATH": os.environ["PATH"], "HOME": home, "KUBECONFIG": f"{home}/none"}
        return subprocess.run([path, *arguments], capture_output=True, text=True, env=environment, cwd=ROOT)


def render(chart, file, kubernetes=KUBERNETES):
    """The release has the chart's name."""
    return run("helm", "template", chart.name, str(chart.folder), "--namespace", chart.namespace, "--kube-version", kubernetes, "--values", str(file))


def all_rendered(chart):
    """Each name in ci/ with what Helm makes of it."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(zip(chart.names(), pool.map(lambda name: render(chart, chart.folder / f"ci/{name}.yaml"), chart.names())))


def write_snapshots(chart):
    chart.rendered.mkdir(exist_ok=True)
    for file in chart.rendered.glob("*.yaml"):
        file.unlink()
    for name, result in all_rendered(chart):
        if result.returncode != 0:
            fault(chart.folder / f"ci/{name}.yaml", f"does not render: {result.stderr.strip()}")
        (chart.rendered / f"{name}.yaml").write_text(result.stdout)
    chart.digest.write_text(digest(chart))


def check_snapshots(chart):
    for name, result in all_rendered(chart):
        file = chart.rendered / f"{name}.yaml"
        if result.returncode != 0:
            fault(chart.folder / f"ci/{name}.yaml", f"does not render: {result.stderr.strip()}")
        elif not file.exists() or file.read_text() != result.stdout:
            fault(file, "is not what Helm renders now: run `make chart-files`, and look at the difference")
    return len(chart.names())


def lint(chart):
    for name in chart.names():
        values_file = str(chart.folder / f"ci/{name}.yaml")
        result = run("helm", "lint", str(chart.folder), "--strict", "--quiet", "--kube-version", KUBERNETES, "--values", values_file)
        if result.returncode != 0:
            fault(chart.folder / f"ci/{name}.yaml", f"helm lint: {result.stdout.strip()} {result.stderr.strip()}")


def unit_tests(chart):
    result = run("helm-unittest", "--strict", str(chart.folder))
    print(result.stdout.strip())
    if result.returncode != 0:
        fault(chart.folder / "tests", f"helm-unittest failed: {result.stderr.strip()}")


def check_refused(chart):
    """Tries each entry of the chart's refused values. Returns how many there are."""
    file = chart.refused
    entries = yaml.safe_load(file.read_text())
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        messages = list(pool.map(lambda entry: refusal(chart, entry), entries))
    for entry, message in zip(entries, messages):
        if problem := wrong_refusal(chart, entry, message):
            fault(file, f"{entry['values']} {problem}")
    reasons = re.findall(r"fail (?:\(printf )?\"(.*?)\"[ )]", (chart.folder / "templates/_checks.tpl").read_text())
    for reason in reasons:
        pattern = re.sub(r"%[sd]", ".*", re.escape(reason).replace("\\%", "%"))
        if not any(message and re.search(pattern, message) for message in messages):
            fault(file, f"nothing here is refused because `{reason}`")
    return len(entries)


def given(chart, entry):
    return {**chart.given, **entry["values"]}


def refusal(chart, entry):
    """Why Helm refuses these values; None if it does not."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(given(chart, entry), file)
        file.flush()
        result = render(chart, Path(file.name), entry.get("kubernetes", KUBERNETES))
    return " ".join(result.stderr.split()) if result.returncode != 0 else None


def wrong_refusal(chart, entry, message):
    """What is wrong with a refusal; None if it is as the entry says."""
    if message is None:
        return "is not refused"
    if entry["says"] not in message:
        return f"is refused without `{entry['says']}`: {message}"
    by_schema = bool(schema_errors(chart, values(chart, yaml.safe_dump(given(chart, entry)))))
    if by_schema is not entry.get("schema", False):
        return "must say by `schema` whether values.schema.json refuses it"
    return None


def package(chart):
    """Helm can package the chart; the package has neither value files of the check nor tests."""
    with tempfile.TemporaryDirectory() as folder:
        result = run("helm", "package", str(chart.folder), "--destination", folder)
        if result.returncode != 0:
            return fault(chart.folder, f"helm package: {result.stderr.strip()}")
        files = subprocess.run(["tar", "tzf", *Path(folder).glob("*.tgz")], capture_output=True, text=True, check=True).stdout.split()
    for file in files:
        if file.startswith((f"{chart.name}/ci/", f"{chart.name}/tests/")):
            fault(chart.folder / ".helmignore", f"the package has {file}")
    for needed in ("values.schema.json", "README.md", *(f"files/{name}" for name in chart.copies), *chart.packaged):
        if f"{chart.name}/{needed}" not in files:
            fault(chart.folder, f"the package lacks {needed}")
