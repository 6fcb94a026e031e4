"""The Dockerfiles and the release workflow, as far as they can be checked without building an image."""

import re
import subprocess
import sys
from pathlib import Path

from .faults import DEPLOY, ROOT, cannot_run, fault
from .reading import dig, parse

DOCKERFILES = (DEPLOY / "Dockerfile", DEPLOY / "cmp/Dockerfile", DEPLOY / "examples/runtimes.Dockerfile")
RELEASE = DEPLOY / "examples/release.yaml"


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
