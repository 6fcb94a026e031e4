#!/usr/bin/env python3
"""Measures the gateway beside a bare reference server, a canary and, if asked, an earlier build.

Every server runs pinned to one core, wrk and everything a server talks to on another. A round
drives each server once, one after the other, so that a noisy minute falls on all of them; the
ratios are taken within a round. The figure that counts is the CPU time of the server process
per request, by its own clock: unlike requests per second it does not depend on how fast the
client or the neighbours are.

Deliberately absent: a verdict by exit code. Figures of a shared machine should be read, not
obeyed; the exit code says only whether every request was answered, and answered right.

See README.md beside this file for what each line of the output means.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import re
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.dont_write_bytecode = True

from harness.bench import Bench  # noqa: E402
from harness.command import choose, exit_code, show, write_json, write_markdown  # noqa: E402
from harness.error import BenchError  # noqa: E402
from harness.report import Table  # noqa: E402
from harness.scenarios.catalogue import DEBIAN_PACKAGES, SCENARIOS  # noqa: E402
from harness.servers import EXAMPLES  # noqa: E402
from harness.settings import Settings  # noqa: E402


def main() -> int:
    return exit_code("bench", lambda: bench(parse_arguments()))


def bench(arguments: argparse.Namespace) -> None:
    settings = checked_settings(arguments)
    scenarios, skipped = chosen_scenarios(arguments.only, arguments.skip_missing)
    facts = environment()
    head = (
        f"{facts['cpu']}, {facts['cores']} cores, Linux {facts['kernel']}, "
        f"load {facts['load_average']:.1f}; {settings.rounds} rounds of {settings.seconds} s, "
        f"servers on core {settings.server_core}, client on core {settings.client_core}"
    )
    print(head, end="\n\n", flush=True)

    tables: list[Table] = []
    # This process, too, stays off the servers' core.
    os.sched_setaffinity(0, {settings.client_core})
    with tempfile.TemporaryDirectory(prefix="appset-gateway-bench-") as directory:
        shared = Bench(settings, Path(directory))
        for scenario in scenarios:
            table = SCENARIOS[scenario].measure(shared)
            show(table)
            tables.append(table)
    notes = [*shared.driver.canary_notes(), *skipped]
    for note in notes:
        print(note)

    if arguments.json:
        document = {
            "environment": facts,
            "settings": asdict(settings),
            "scenarios": {table.name: table.data for table in tables},
            "notes": notes,
        }
        write_json(arguments.json, document)
    if arguments.markdown:
        listed = "\n".join(f"- {note}" for note in notes)
        write_markdown(arguments.markdown, [head, *(table.markdown() for table in tables), listed])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measures the gateway beside a bare reference server.",
        epilog="Scenarios: " + ", ".join(SCENARIOS),
    )
    parser.add_argument("--gateway", type=Path, required=True, help="the gateway, built with `make dist`")
    parser.add_argument(
        "--examples",
        type=Path,
        required=True,
        help="the folder of the other programs, built with `cargo build --profile dist --examples`",
    )
    parser.add_argument("--baseline", type=Path, help="an earlier gateway binary to compare with")
    parser.add_argument("--seconds", type=int, default=3, help="length of one run (default 3)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each server (default 5)")
    parser.add_argument("--only", help="comma-separated scenarios (default all)")
    parser.add_argument(
        "--cores", help="two core numbers: the server's and the client's (default the first two)"
    )
    parser.add_argument("--json", type=Path, help="also write every round as JSON")
    parser.add_argument("--markdown", type=Path, help="also write the tables as Markdown")
    parser.add_argument(
        "--skip-missing",
        action="store_true",
        help="leave out scenarios whose tools are not installed",
    )
    return parser.parse_args()


def checked_settings(arguments: argparse.Namespace) -> Settings:
    examples = [arguments.examples / name for name in EXAMPLES]
    for binary in [arguments.gateway, arguments.baseline, *examples]:
        if binary is not None and not (binary.is_file() and os.access(binary, os.X_OK)):
            raise BenchError(f"{binary} is not there: build it first")
    if arguments.seconds < 1 or arguments.rounds < 1:
        raise BenchError("--seconds and --rounds start at 1")
    server_core, client_core = chosen_cores(arguments.cores)
    return Settings(
        gateway=arguments.gateway.resolve(),
        examples=arguments.examples.resolve(),
        baseline=arguments.baseline.resolve() if arguments.baseline else None,
        seconds=arguments.seconds,
        rounds=arguments.rounds,
        server_core=server_core,
        client_core=client_core,
    )


def chosen_cores(asked: str | None) -> tuple[int, int]:
    allowed = sorted(os.sched_getaffinity(0))
    cores = allowed[:2] if asked is None else [int(core) for core in re.findall(r"\d+", asked)]
    if len(cores) != 2 or cores[0] == cores[1] or not set(cores) <= set(allowed):
        raise BenchError(
            f"two cores are needed, one for the server and one for the client, "
            f"of those allowed here: {allowed}"
        )
    return cores[0], cores[1]


def chosen_scenarios(only: str | None, skip_missing: bool) -> tuple[list[str], list[str]]:
    """The scenarios to run, and a note for each that is left out."""
    chosen = choose(only, SCENARIOS, "unknown scenario")
    runnable, skipped = [], []
    for name in dict.fromkeys(chosen):
        missing = [tool for tool in SCENARIOS[name].tools if shutil.which(tool) is None]
        if not missing:
            runnable.append(name)
            continue
        packages = " ".join(DEBIAN_PACKAGES[tool] for tool in missing)
        note = f"{name} needs {', '.join(missing)}: apt-get install {packages}"
        if not skip_missing:
            raise BenchError(f"{note} (or leave it out with --skip-missing)")
        skipped.append(f"skipped: {note}")
    return runnable, skipped


def environment() -> dict[str, Any]:
    cpuinfo = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": model[1] if model else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "load_average": os.getloadavg()[0],
    }


if __name__ == "__main__":
    sys.exit(main())
