"""Servers compared by their CPU time per request."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from .report import Table, against, latency
from .rounds import Round
from .servers import CANARY, GATEWAY


@dataclass(frozen=True)
class Ratio:
    """One server's CPU time per request over another's, round by round."""

    over: str
    median: float
    low: float
    high: float
    of: str = GATEWAY

    @classmethod
    def between(
        cls, over: str, ours: Sequence[Round], theirs: Sequence[Round], of: str = GATEWAY
    ) -> Ratio:
        ratios = [our.cpu_us / their.cpu_us for our, their in zip(ours, theirs)]
        return cls(over, statistics.median(ratios), min(ratios), max(ratios), of)

    def text(self, target: float | None) -> str:
        line = f"{self.of} / {self.over}: {self.median:.2f} ({self.low:.2f} to {self.high:.2f})"
        return line if target is None else f"{line}, {against(self.median, target)}"


def tabulate(
    name: str,
    title: str,
    rounds: Mapping[str, Sequence[Round]],
    targets: Mapping[str, float | None],
    remarks: Sequence[str] = (),
) -> Table:
    """A line for each server. The gateway is compared with each server in `targets` that was driven."""
    with_heads = any(one.heads > 0 for one in rounds[GATEWAY])
    heads_header = ["HEADs", "registry µs/HEAD"] if with_heads else []
    columns = ["CPU µs", "min", *heads_header, "req/s", "p50", "p99", "RSS MiB"]
    table = Table(name, title, ["", *columns])
    for server, driven in rounds.items():
        label = f"{CANARY} (64 connections)" if server == CANARY else server
        table.rows.append([label, *cells(driven, with_heads)])
    ratios = [Ratio.between(over, rounds[GATEWAY], rounds[over]) for over in targets if over in rounds]
    table.remarks = [*(ratio.text(targets[ratio.over]) for ratio in ratios), *remarks]
    table.data = {
        "rounds": {server: [asdict(one) for one in driven] for server, driven in rounds.items()},
        "ratios": {ratio.over: asdict(ratio) for ratio in ratios},
    }
    return table


def cells(driven: Sequence[Round], with_heads: bool) -> list[str]:
    median = median_of(driven)
    return [
        f"{median.cpu_us:.2f}",
        f"{min(one.cpu_us for one in driven):.2f}",
        *([f"{median.heads:.2f}", f"{median.head_us:.0f}"] if with_heads else []),
        f"{median.requests_per_second:.0f}",
        latency(median.p50_us),
        latency(median.p99_us),
        f"{driven[-1].resident_mib:.1f}",
    ]


def median_of(driven: Sequence[Round]) -> Round:
    """The median of each figure."""
    fields = dataclasses.fields(Round)
    return Round(*(statistics.median(getattr(one, field.name) for one in driven) for field in fields))
