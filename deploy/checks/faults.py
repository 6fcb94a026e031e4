"""The problems that were found, and where things are."""

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"
PROGRAM = Path(sys.argv[0]).name

found = []


def fault(where, message):
    """Notes a problem. `where` is a path in the repository, or text."""
    found.append(f"{relative(where)}: {message}")


def relative(where):
    return where.relative_to(ROOT) if isinstance(where, Path) and where.is_relative_to(ROOT) else where


def cannot_run(message):
    print(f"deploy/{PROGRAM}: {message}", file=sys.stderr)
    raise SystemExit(2)


def use_the_venv():
    """Restarts this script in the Python that has the libraries."""
    if os.environ.pop("DEPLOY_CHECK_IN_VENV", None):
        return
    wanted = os.environ.get("PYTHON") or str(ROOT / "target/venv/bin/python")
    python = shutil.which(wanted)
    if not python:
        cannot_run(f"no Python at {wanted}; create it with: make target/venv/done")
    os.environ["DEPLOY_CHECK_IN_VENV"] = "1"
    os.execv(python, [python, "-B", str(Path(sys.argv[0]).resolve()), *sys.argv[1:]])


def finish():
    """Prints all problems, and ends the program."""
    for line in found:
        print(f"deploy/{PROGRAM}: {line}", file=sys.stderr)
    sys.exit(1 if found else 0)
