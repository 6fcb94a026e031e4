"""The Dockerfiles, the release workflow and the scripts, as far as they can be checked without building an image."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .faults import DEPLOY, ROOT, cannot_run, fault
from .reading import dig, parse
from .snapshots import program

DOCKERFILES = (DEPLOY / "Dockerfile", DEPLOY / "cmp/Dockerfile", DEPLOY / "examples/runtimes.Dockerfile")
RELEASE = ROOT / ".github/workflows/release.yaml"


def check_images():
    for file in DOCKERFILES:
        check_dockerfile(file)
    hadolint = Path(sys.executable).parent / "hadolint"
    if not hadolint.exists():
        cannot_run(f"no {hadolint}; install it with: make target/venv/done")
    result = subprocess.run([hadolint, "--no-color", *DOCKERFILES], capture_output=True, text=True)
    for line in result.stdout.splitlines():
        fault("hadolint", line.replace(f"{ROOT}/", ""))
    check_release()
    check_scripts()


def instructions(file):
    """The instructions as (word, rest), with continued lines joined and comments left out."""
    lines = [line for line in file.read_text().splitlines() if not line.lstrip().startswith("#")]
    text = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def check_dockerfile(file):
    """Each stage that another names is there, and each image that runs has a numeric user other than 0."""
    stages, users, current = [], {}, None
    for word, rest in instructions(file):
        if word == "FROM":
            parent, _, name = rest.partition(" AS ")
            current = name or "(last)"
            users[current] = users.get(parent)
            stages.append(current)
        elif word == "USER":
            users[current] = rest
        elif word == "COPY" and (source := re.search(r"--from=(\S+)", rest)) and source[1] not in stages:
            fault(file, f"COPY --from={source[1]}: there is no such stage before it")
    for stage in {stages[-1], "minimal"} & set(stages):
        if not re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[stage] or ""):
            fault(file, f"the stage {stage} ends with the user {users[stage]}; it must be a number other than 0")


def check_release():
    """Each action is pinned to a commit, and each job says what it may do."""
    for line in RELEASE.read_text().splitlines():
        if "uses:" in line and not re.search(r"uses: [\w./-]+@[0-9a-f]{40} # v[0-9.]+$", line):
            fault(RELEASE, f"`{line.strip()}`: pin the action to a commit, with its version as a comment")
    workflow = dict(*parse(RELEASE.read_text(), RELEASE))
    if workflow.get("permissions") != {}:
        fault(RELEASE, "permissions must be {}, so that each job says what it needs")
    for name, job in (workflow.get("jobs") or {}).items():
        if not dig(job, "permissions") or not job.get("timeout-minutes"):
            fault(RELEASE, f"the job {name} needs `permissions` and `timeout-minutes`")
    actionlint = ROOT / "target/tools/bin/actionlint"
    if not actionlint.exists():
        cannot_run(f"no {actionlint}; build it with: tools/need-actionlint")
    # It runs shellcheck for each `run`.
    result = subprocess.run([actionlint, "-no-color", "-oneline", RELEASE], capture_output=True, text=True)
    for line in (result.stdout + result.stderr).splitlines():
        fault("actionlint", line.replace(f"{ROOT}/", ""))
    for script in re.findall(r"run: (deploy/[\w./-]+)", RELEASE.read_text()):
        if not os.access(ROOT / script, os.X_OK):
            fault(RELEASE, f"runs {script}, which is not a program")


def scripts():
    """All scripts of a shell in the repository's folders of tools."""
    found = [DEPLOY / "release/common.sh"]
    for folder in (ROOT / "tools", DEPLOY / "release", DEPLOY / "try"):
        found += [file for file in sorted(folder.glob("*")) if file.is_file() and file.read_bytes().startswith((b"#!/usr/bin/env bash", b"#!/bin/sh"))]
    return found


def check_scripts():
    """shellcheck finds nothing, and each script says at its top how it is used."""
    if not shutil.which("shellcheck"):
        cannot_run("no shellcheck; on Debian: apt-get install shellcheck")
    files = scripts()
    result = subprocess.run(["shellcheck", "-x", "-P", "SCRIPTDIR", "-f", "gcc", *files], capture_output=True, text=True)
    for line in (result.stdout + result.stderr).splitlines():
        fault("shellcheck", line.replace(f"{ROOT}/", ""))
    for file in files[1:]:
        if not os.access(file, os.X_OK) or "# usage: " not in file.read_text():
            fault(file, "must be executable, and have a comment `usage: …`")
    check_release_documents()


def check_release_documents():
    """What a release is made of, as far as its scripts can run here: the OpenVEX document, and the configuration that checks the own image."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "0", "NO_COLOR": "1"}
    with tempfile.TemporaryDirectory() as folder:
        for script, file in (("vex", "openvex.json"), ("own-image", "gateway.yaml"), ("notes", "notes.md")):
            result = subprocess.run([DEPLOY / "release" / script], capture_output=True, text=True, env=environment)
            if result.returncode != 0 or not result.stdout.strip():
                return fault(DEPLOY / "release" / script, f"fails: {result.stderr.strip()}")
            (Path(folder) / file).write_text(result.stdout)
        result = subprocess.run([program(), "check", "--no-secrets", "-c", f"{folder}/gateway.yaml"], capture_output=True, text=True, env=environment)
        if result.returncode != 0:
            fault(DEPLOY / "release/own-image", f"`appset-gateway check` refuses what it prints:\n{result.stdout}{result.stderr}")
    return None
