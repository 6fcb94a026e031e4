"""The line on a terminal that shows the current step."""

from __future__ import annotations

import sys


def progress(message: str) -> None:
    """Shows the current step on a terminal; an empty message erases the line."""
    if sys.stderr.isatty():
        print(f"\r\033[K{message}", end="", file=sys.stderr, flush=True)
