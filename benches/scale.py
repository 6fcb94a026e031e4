#!/usr/bin/env python3
"""Measures how the gateway grows: with the questions that it knows, with its routes, and with the sets of an answer.

Each size is a gateway of its own. What counts is the price of one more: between two sizes, divided by the difference. It
should be the same for large sizes as for small ones, within 20 %.

See README.md beside this file for what each line of the output means.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True

from harness.bench import progress  # noqa: E402
from harness.error import BenchError  # noqa: E402
from harness.growth import SERIES, Growth  # noqa: E402
from harness.plot import plot  # noqa: E402


def main() -> int:
    arguments = parse_arguments()
    try:
        scale(arguments)
    except BenchError as error:
        progress("")
        print(f"scale: {error}", file=sys.stderr)
        return 1
    return 0


def scale(arguments: argparse.Namespace) -> None:
    names = list(SERIES) if arguments.only is None else [name.strip() for name in arguments.only.split(",")]
    unknown = sorted(set(names) - set(SERIES))
    if unknown:
        raise BenchError(f"unknown: {', '.join(unknown)}; there are {', '.join(SERIES)}")
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[-1]})
    tables = []
    with tempfile.TemporaryDirectory(prefix="appset-gateway-scale-") as directory:
        growth = Growth(arguments.gateway.resolve(), Path(directory), cores[0])
        for name in names:
            table = growth.table(name)
            progress("")
            print(table.text(), end="\n\n", flush=True)
            tables.append(table)
    if arguments.markdown:
        arguments.markdown.write_text("\n\n".join(table.markdown() for table in tables) + "\n")
    if arguments.json:
        arguments.json.write_text(json.dumps({table.name: table.data for table in tables}, indent=2) + "\n")
    if arguments.svg:
        arguments.svg.write_text(plot([(table.title, table.data) for table in tables]))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures how the gateway grows.")
    parser.add_argument("--gateway", type=Path, required=True, help="the gateway")
    parser.add_argument("--only", help=f"a comma-separated choice of {', '.join(SERIES)} (default all)")
    parser.add_argument("--json", type=Path, help="also write the figures as JSON")
    parser.add_argument("--markdown", type=Path, help="also write the tables as Markdown")
    parser.add_argument("--svg", type=Path, help="also draw them")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
