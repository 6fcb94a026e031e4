#!/usr/bin/env python3
"""Measures how the programs grow: with questions, routes, parameter sets, elements, and with files of a plugin's tree.

Each size is a server of its own. What counts is the price of one more: between two sizes, divided by the difference. It
should be the same for large sizes as for small ones, within 20 %.

See README.md beside this file for what each line of the output means.
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
from harness.error import BenchError  # noqa: E402
from harness.growth import Lab, table  # noqa: E402
from harness.series.catalogue import SERIES  # noqa: E402


def main() -> int:
    return exit_code("scale", lambda: scale(parse_arguments()))


def scale(arguments: argparse.Namespace) -> None:
    names = choose(arguments.only, SERIES)
    missing = [tool for name in names for tool in SERIES[name].tools if shutil.which(tool) is None]
    if missing:
        raise BenchError(f"{', '.join(missing)} must be installed")
    if "plugins" in names and arguments.cmp_gateway is None:
        raise BenchError("plugins needs --cmp-gateway")
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[-1]})
    tables = []
    with tempfile.TemporaryDirectory(prefix="appset-gateway-scale-") as directory:
        cmp_gateway = (arguments.cmp_gateway or Path()).resolve()
        lab = Lab(arguments.gateway.resolve(), cmp_gateway, Path(directory), cores[0])
        for name in names:
            tables.append(table(name, SERIES[name], lab, arguments.sizes or SERIES[name].sizes))
            show(tables[-1])
    write_outputs(arguments, tables)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures how the programs grow.")
    parser.add_argument("--gateway", type=Path, required=True, help="the gateway, built with `make dist`")
    parser.add_argument("--cmp-gateway", type=Path, help="cmp-gateway, built with `make dist-cmp`; for plugins")
    add_only(parser, SERIES)
    parser.add_argument("--sizes", type=lambda text: [int(size) for size in text.split(",")], help="other sizes, such as 10,100")
    add_outputs(parser)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
