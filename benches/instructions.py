#!/usr/bin/env python3
"""Counts the instructions and system calls of a request, of the gateway and of a bare reference server.

The counts hardly differ between runs, however busy the machine is. They are no times: they say which code does more, and
not how long it takes.

See README.md beside this file for how to read the output.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True

from harness.command import add_only, add_outputs, choose, exit_code, show, write_outputs  # noqa: E402
from harness.counting import COUNTED, TOOLS, Counting, profile  # noqa: E402
from harness.error import BenchError  # noqa: E402
from harness.report import Table  # noqa: E402
from harness.settings import Settings  # noqa: E402


def main() -> int:
    return exit_code("instructions", lambda: count(parse_arguments()))


def count(arguments: argparse.Namespace) -> None:
    names = choose(arguments.only, COUNTED)
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
            show(table)
            tables.append(table)
            profiles.append(profile(name, counted))
    write_outputs(arguments, tables)
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
    add_only(parser, COUNTED)
    parser.add_argument("--requests", type=int, default=2000, help="requests that are counted (default 2000)")
    parser.add_argument("--runs", type=int, default=2, help="runs of each length; the least counts (default 2)")
    add_outputs(parser)
    parser.add_argument("--profile", type=Path, help="also write the functions that cost most")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
