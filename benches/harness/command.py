"""What the scripts share: exit codes, the choice by `--only`, and tables on the terminal and in files."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Callable

from .error import BenchError
from .progress import progress
from .report import Table


def exit_code(name: str, command: Callable[[], int | None]) -> int:
    """Runs the command; returns the exit code of the script.

    A BenchError is printed after the script's name. SIGTERM and SIGINT end the command, and with it the servers that it started.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return command() or 0
    except BenchError as error:
        progress("")
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        progress("")
        return 128 + signal.SIGINT


def add_only(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    parser.add_argument("--only", help=f"a comma-separated choice of {', '.join(names)} (default all)")


def add_outputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, help="also write the figures as JSON")
    parser.add_argument("--markdown", type=Path, help="also write the tables as Markdown")


def choose(only: str | None, names: Iterable[str], complaint: str = "unknown:") -> list[str]:
    """The names that `--only` lists, or all of them.

    Any other name is a BenchError, whose message begins with `complaint`.
    """
    known = list(names)
    chosen = known if only is None else [name.strip() for name in only.split(",")]
    unknown = sorted(set(chosen) - set(known))
    if unknown:
        raise BenchError(f"{complaint} {', '.join(unknown)}; there are {', '.join(known)}")
    return chosen


def show(table: Table) -> None:
    """Prints the table in the place of the progress."""
    progress("")
    print(table.text(), end="\n\n", flush=True)


def write_outputs(arguments: argparse.Namespace, tables: Sequence[Table]) -> None:
    """Writes the files that `--markdown` and `--json` name."""
    if arguments.markdown:
        write_markdown(arguments.markdown, [table.markdown() for table in tables])
    if arguments.json:
        write_json(arguments.json, {table.name: table.data for table in tables})


def write_markdown(path: Path, parts: Iterable[str]) -> None:
    """Writes the parts with an empty line between them."""
    write(path, "\n\n".join(parts))


def write_json(path: Path, document: Any) -> None:
    # Paths become strings.
    write(path, json.dumps(document, indent=2, default=str))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.rstrip() + "\n")
