"""Builds programs in Go."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from .error import BenchError


def build(source: Path, program: Path) -> None:
    """Builds `source`, a file or the folder of a module."""
    folder, target = (source, ".") if source.is_dir() else (source.parent, source.name)
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}
    argv = ["go", "build", "-o", str(program), target]
    built = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        raise BenchError(f"Go cannot build {source}:\n{built.stderr}")
