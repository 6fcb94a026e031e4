"""A server process: started on its core, read through /proc, stopped by its handle."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from .error import BenchError

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# The clock of a whole process, the last bits of its number: what clock_getcpuclockid(3) gives.
CPUCLOCK_SCHED = 2
READY_WITHIN_SECONDS = 20.0


@dataclass(frozen=True)
class CpuTime:
    """CPU seconds of a process with all its threads, and of its children that were waited for."""

    own: float
    children: float

    def __sub__(self, earlier: CpuTime) -> CpuTime:
        return CpuTime(self.own - earlier.own, self.children - earlier.children)


class Server:
    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        port: int,
        core: int,
        log: Path,
        environment: Mapping[str, str],
    ) -> None:
        self.name = name
        self.port = port
        self.log = log
        # A child inherits its parent's affinity, so the server sees its one core from its first
        # instruction on, and sizes its thread pools accordingly.
        before = os.sched_getaffinity(0)
        with log.open("ab") as output:
            os.sched_setaffinity(0, {core})
            try:
                self.process = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **environment},
                )
            except OSError as error:
                raise BenchError(f"{name}: cannot start {argv[0]}: {error}") from error
            finally:
                os.sched_setaffinity(0, before)

    def wait_until(
        self,
        ready: Callable[[Server], bool],
        pause: float = 0.005,
        within: float = READY_WITHIN_SECONDS,
    ) -> None:
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise BenchError(
                    f"{self.name}: exited with {self.process.returncode} before it was ready\n"
                    f"{self.log_tail()}"
                )
            if ready(self):
                return
            time.sleep(pause)
        raise BenchError(
            f"{self.name}: not ready after {within:.0f} s\n{self.log_tail()}"
        )

    def stop(self, patience: float = 5.0) -> None:
        if self.process.poll() is None and patience > 0:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def cpu_time(self) -> CpuTime:
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        # The second field, the command's name, may hold anything but ends with the last ')'.
        fields = stat[stat.rindex(")") + 2 :].split()
        children_user, children_system = (int(ticks) for ticks in fields[13:15])
        return CpuTime(
            own=time.clock_gettime(~self.process.pid << 3 | CPUCLOCK_SCHED),
            children=(children_user + children_system) / TICKS_PER_SECOND,
        )

    def resident_mib(self) -> float:
        return self._status_mib("VmRSS")

    def peak_mib(self) -> float:
        """The most that was ever resident."""
        return self._status_mib("VmHWM")

    def _status_mib(self, key: str) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"^{key}:\s+(\d+) kB$", status, re.MULTILINE)
        if found is None:
            raise BenchError(f"{self.name}: no {key} in /proc/{self.process.pid}/status")
        return int(found[1]) / 1024

    def log_lines(self, holding: bytes = b"") -> int:
        with self.log.open("rb") as log:
            return sum(holding in line for line in log)

    def log_tail(self) -> str:
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 2000))
            tail = log.read().decode(errors="replace").strip()
        return f"--- the end of its log:\n{tail or '(empty)'}"

    def clear_log(self) -> None:
        """Keeps a run from filling the disk; the server appends, so it goes on at the start."""
        os.truncate(self.log, 0)
