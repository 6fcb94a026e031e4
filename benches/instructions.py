#!/usr/bin/env python3
"""Counts the instructions and system calls of a request, of the gateway and of a bare reference server.

The counts hardly differ between runs, however busy the machine is. They are no times: they say which code does more, and
not how long it takes.

See README.md beside this file for how to read the output.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True

from harness.bench import Settings, progress  # noqa: E402
from harness.counting import COUNTED, TOOLS, Counting, profile  # noqa: E402
from harness.error import BenchError  # noqa: E402
from harness.report import Table  # noqa: E402


def main() -> int:
    arguments = parse_arguments()
    try:
        count(arguments)
    except BenchError as error:
        progress("")
        print(f"instructions: {error}", file=sys.stderr)
        return 1
    return 0


def count(arguments: argparse.Namespace) -> None:
    names = list(COUNTED) if arguments.only is None else [name.strip() for name in arguments.only.split(",")]
    unknown = sorted(set(names) - set(COUNTED))
    if unknown:
        raise BenchError(f"unknown: {', '.join(unknown)}; there are {', '.join(COUNTED)}")
    missing = [tool for name in names for tool in ("valgrind", *TOOLS[name]) if shutil.which(tool) is None]
    if missing:
        raise BenchError(f"{', '.join(dict.fromkeys(missing))} must be installed")
    if arguments.requests < 1 or arguments.runs < 1:
        raise BenchError("--requests and --runs start at 1")
    tables: list[Table] = []
    profiles: list[str] = []
    with tempfile.TemporaryDirectory(prefix="appset-gateway-instructions-") as directory:
        counting = Counting(settings(arguments), Path(directory), arguments.requests, arguments.runs)
        for name in names:
            table, counted = counting.run(name)
            progress("")
            print(table.text(), end="\n\n", flush=True)
            tables.append(table)
            profiles.append(profile(name, counted))
    if arguments.markdown:
        arguments.markdown.write_text("\n\n".join(table.markdown() for table in tables) + "\n")
    if arguments.json:
        arguments.json.write_text(json.dumps({table.name: table.data for table in tables}, indent=2) + "\n")
    if arguments.profile:
        arguments.profile.write_text("\n".join(profiles))


def settings(arguments: argparse.Namespace) -> Settings:
    cores = sorted(os.sched_getaffinity(0))
    return Settings(
        gateway=arguments.gateway.resolve(),
        examples=arguments.examples.resolve(),
        baseline=None,
        seconds=1,
        rounds=1,
        # On one core a server starts one thread for requests, on any machine.
        server_core=cores[0],
        client_core=cores[-1],
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Counts the instructions of a request.")
    parser.add_argument("--gateway", type=Path, required=True, help="the gateway")
    parser.add_argument("--examples", type=Path, required=True, help="the folder of the other programs")
    parser.add_argument("--only", help=f"a comma-separated choice of {', '.join(COUNTED)} (default all)")
    parser.add_argument("--requests", type=int, default=2000, help="requests that are counted (default 2000)")
    parser.add_argument("--runs", type=int, default=2, help="runs of each length; the least counts (default 2)")
    parser.add_argument("--json", type=Path, help="also write the figures as JSON")
    parser.add_argument("--markdown", type=Path, help="also write the tables as Markdown")
    parser.add_argument("--profile", type=Path, help="also write the functions that cost most")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
