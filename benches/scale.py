#!/usr/bin/env python3
"""Measures how the gateway grows: with the questions that it knows, with its routes, and with the sets of an answer.

Each size is a gateway of its own. What counts is the price of one more: between two sizes, divided by the difference. It
should be the same for large sizes as for small ones, within 20 %.

See README.md beside this file for what each line of the output means.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True

from harness.command import add_only, add_outputs, choose, exit_code, show, write_outputs  # noqa: E402
from harness.growth import SERIES, Growth  # noqa: E402


def main() -> int:
    return exit_code("scale", lambda: scale(parse_arguments()))


def scale(arguments: argparse.Namespace) -> None:
    names = choose(arguments.only, SERIES)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[-1]})
    tables = []
    with tempfile.TemporaryDirectory(prefix="appset-gateway-scale-") as directory:
        growth = Growth(arguments.gateway.resolve(), Path(directory), cores[0])
        for name in names:
            table = growth.table(name)
            show(table)
            tables.append(table)
    write_outputs(arguments, tables)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures how the gateway grows.")
    parser.add_argument("--gateway", type=Path, required=True, help="the gateway, built with `make dist`")
    add_only(parser, SERIES)
    add_outputs(parser)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
