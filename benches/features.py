#!/usr/bin/env python3
"""Builds the gateway with each of Cargo's features off, one after the other, and measures start, memory and size of each.

A build of the profile `dist` takes minutes. A program that was built before stays in target/features, and is measured again
unless `--rebuild` is given.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True

from harness.bench import Bench  # noqa: E402
from harness.command import add_only, add_outputs, choose, exit_code, show, write_outputs  # noqa: E402
from harness.error import BenchError  # noqa: E402
from harness.progress import progress  # noqa: E402
from harness.report import Table  # noqa: E402
from harness.scenarios.footprint import MIB, STARTS, start_once  # noqa: E402
from harness.servers import GATEWAY, running  # noqa: E402
from harness.settings import Settings  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
# What a configuration can have. The allocator stays.
FEATURES = tuple(re.findall(r"\w+", re.findall(r"(?m)^full = \[(.*)\]", (ROOT / "Cargo.toml").read_text())[0]))
CLOUDS = ("aws", "google", "azure")
# The features that are off, by the rows of the table.
ROWS: dict[str, tuple[str, ...]] = {
    "all": (),
    "no otlp": ("otlp",),
    "no keyless": ("keyless",),
    "no sql": ("sql",),
    "no clouds": CLOUDS,
    "none": FEATURES,
}


def main() -> int:
    return exit_code("features", lambda: measure_all(parse_arguments()))


def measure_all(arguments: argparse.Namespace) -> None:
    rows = choose(arguments.only, ROWS)
    if arguments.dry_run:
        for row in rows:
            print(f"{row}: {' '.join(cargo(arguments.profile, row))}")
        return
    programs = {row: build(arguments, row) for row in rows}
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[-1]})
    title = f"start (median of {STARTS}), memory after the first answer, and size, by Cargo's features"
    table = Table("features", title, ["", "start", "resident", "size"])
    with tempfile.TemporaryDirectory(prefix="appset-gateway-features-") as directory:
        benches = {row: bench(program, Path(directory) / str(number), cores) for number, (row, program) in enumerate(programs.items())}
        starts = time_starts(benches)
        for row, one in benches.items():
            resident, size = resident_mib(one), programs[row].stat().st_size / MIB
            table.rows.append([row, f"{starts[row]:.1f} ms", f"{resident:.1f} MiB", f"{size:.1f} MiB"])
            table.data[row] = {"start_ms": starts[row], "resident_mib": resident, "size_mib": size}
    show(table)
    write_outputs(arguments, [table])


def bench(program: Path, folder: Path, cores: list[int]) -> Bench:
    """The program alone: no other takes part."""
    folder.mkdir()
    settings = Settings(program, folder, None, seconds=1, rounds=1, server_core=cores[0], client_core=cores[-1])
    return Bench(settings, folder)


def time_starts(benches: dict[str, Bench]) -> dict[str, float]:
    """Milliseconds until the first answer, in turns, so that a noisy minute falls on all of them."""
    times: dict[str, list[float]] = {row: [] for row in benches}
    for number in range(STARTS + 1):
        progress(f"start {number} of {STARTS}")
        for row, one in benches.items():
            times[row].append(start_once(one, GATEWAY))
    # The first start reads the file from the disk.
    return {row: statistics.median(taken[1:]) for row, taken in times.items()}


def resident_mib(one: Bench) -> float:
    """After the first answer."""
    with running(one.servers.spawn_named(GATEWAY)) as server:
        time.sleep(0.5)
        return server.resident_mib()


def cargo(profile: str, row: str) -> list[str]:
    """The command of `make dist`, with the features that stay on."""
    features = ",".join(["jemalloc", *(feature for feature in FEATURES if feature not in ROWS[row])])
    argv = ["cargo", "rustc", "--profile", profile, "--locked", "--bin", "appset-gateway", "--no-default-features"]
    return [*argv, "--features", features, "--", "-C", "link-arg=-Wl,-z,pack-relative-relocs"]


def build(arguments: argparse.Namespace, row: str) -> Path:
    kept = ROOT / "target" / "features" / arguments.profile / row.replace(" ", "-")
    if arguments.rebuild or not kept.exists():
        print(f"building: {row}", file=sys.stderr)
        if subprocess.run(cargo(arguments.profile, row), cwd=ROOT, check=False).returncode != 0:
            raise BenchError(f"{row}: it cannot be built")
        kept.parent.mkdir(parents=True, exist_ok=True)
        folder = "debug" if arguments.profile == "dev" else arguments.profile
        shutil.copy(ROOT / "target" / folder / "appset-gateway", kept)
    return kept


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures the gateway with each of Cargo's features off.")
    parser.add_argument("--profile", default="dist", help="Cargo's profile (default dist, which takes minutes for each build)")
    parser.add_argument("--rebuild", action="store_true", help="build also what is in target/features already")
    parser.add_argument("--dry-run", action="store_true", help="print the commands of the builds, and do nothing")
    add_only(parser, ROWS)
    add_outputs(parser)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
