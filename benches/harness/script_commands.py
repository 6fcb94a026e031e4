"""The scripts that the gateway runs, and that a bare server runs beside it."""

from __future__ import annotations

import json
from pathlib import Path

from .workload import GETPARAMS, SCRIPT_PARAMETERS, Workload

# What scripts run, by the names of their routes; `{file}` holds the list.
SCRIPTS: dict[str, list[str]] = {
    "script-cat": ["/bin/cat", "{file}"],
    "script-sh": ["/bin/sh", "-c", "cat > /dev/null; echo '{list}'"],
    "script-python": [
        "/usr/bin/python3",
        "-c",
        "import json, sys; json.load(sys.stdin); print('{list}')",
    ],
}

# A script that stays, in the words of docs/workers.md.
WORKER = "worker"
WORKER_COMMAND = [
    "/usr/bin/python3",
    "-c",
    "import json, sys\n"
    "for line in sys.stdin:\n"
    "    asked = json.loads(line)\n"
    "    print(json.dumps({'id': asked['id'], 'output': {list}}), flush=True)\n",
]


def script_workload(route: str, connections: int) -> Workload:
    at_once = "alone" if connections == 1 else f"{connections} at once"
    return Workload(
        title=f"{route}, {at_once}",
        script="miss.lua",
        path=f"/{route}{GETPARAMS}",
        connections=connections,
        parameters=SCRIPT_PARAMETERS,
    )


def write(directory: Path) -> dict[str, list[str]]:
    """Writes the list that the scripts print; returns their commands by route."""
    listed = json.dumps(SCRIPT_PARAMETERS)
    directory.mkdir()
    file = directory / "list.json"
    file.write_text(listed)
    return {
        route: [part.replace("{file}", str(file)).replace("{list}", listed) for part in command]
        for route, command in {**SCRIPTS, WORKER: WORKER_COMMAND}.items()
    }
