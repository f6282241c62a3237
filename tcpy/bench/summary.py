"""The rows as data, and their means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .measure import Entry
from .problems import moved_bytes
from .rows import Row
from .suites import Case

FASTEST, YARDSTICK = "fastest peer", "yardstick"


@dataclass(frozen=True)
class Mean:
    """Our speed as a multiple of something else's: geometric means over the rows of an operation that aren't noisy."""

    op: str
    against: str
    rows: int
    left_out: int  # noisy rows
    plain: float
    weighted: float  # by how often the network has the layer
    lowest: float
    lowest_case: str


def title(about: dict[str, Any]) -> str:
    """The suite, and how many images its convolutions take."""
    return f"{about['suite']}, batch {about['batch']}" if about["batch"] else str(about["suite"])


@dataclass(frozen=True)
class _Speed:
    case: Case
    value: float
    noisy: bool


def _speed(row: Row, against: str) -> _Speed | None:
    if against == YARDSTICK:
        return _Speed(row.case, row.of_yardstick, row.ours.noisy or row.yardstick.noisy)
    peer = row.fastest_peer if against == FASTEST else against
    quartiles = row.ratio(peer) if peer else None
    return _Speed(row.case, quartiles.median, quartiles.noisy) if quartiles else None


def _mean(op: str, against: str, rows: Iterable[Row]) -> Mean | None:
    found = [speed for row in rows if (speed := _speed(row, against))]
    speeds = [speed for speed in found if not speed.noisy]
    if not speeds:
        return None
    logs, counts = np.log([speed.value for speed in speeds]), [speed.case.count for speed in speeds]
    plain, weighted = (float(np.exp(np.average(logs, weights=weights))) for weights in (None, counts))
    lowest = min(speeds, key=lambda speed: speed.value)
    return Mean(op, against, len(speeds), len(found) - len(speeds), plain, weighted, lowest.value, str(lowest.case))


def means(rows: Sequence[Row]) -> list[Mean]:
    """For each operation, against each peer's faster layout, against the fastest of all, and the yardstick."""
    timed = [row for row in rows if row.right]
    ops, peers = dict.fromkeys(row.op for row in timed), dict.fromkeys(peer for row in timed for peer in row.peers)
    of_op = {op: [row for row in timed if row.op == op] for op in ops}
    found = (_mean(op, against, of_op[op]) for op in ops for against in (*peers, FASTEST, YARDSTICK))
    return [mean for mean in found if mean]


def _entry(row: Row, entry: Entry) -> dict[str, Any]:
    samples = {"samples": len(entry.samples), "dropped": entry.dropped, "noisy": entry.noisy}
    return {"seconds": entry.median, "gflops": row.gflops(entry), **samples}


def _peer(row: Row, peer: str) -> dict[str, Any]:
    quartiles = row.ratio(peer)
    layouts = {layout or "rows": _entry(row, entry) for layout, entry in row.peers[peer].items()}
    return {"ratio": quartiles._asdict() if quartiles else None, "layouts": layouts}


def row_data(row: Row) -> dict[str, Any]:
    """One row for JSON; a wrong one has no times."""
    case = {"case": str(row.case), "op": row.op, "count": row.case.count, "excess": row.excess, "right": row.right}
    if not row.right:
        return case
    return {
        **case,
        "flop": row.case.flops,
        "bytes": moved_bytes(row.case),
        "tcpy": _entry(row, row.ours),
        "of_yardstick": row.of_yardstick,
        "ways": {name: _entry(row, entry) for name, entry in row.ways.items()},
        "peers": {peer: _peer(row, peer) for peer in row.peers},
        "missing": row.missing,
    }


def data(about: dict[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """Everything, for JSON."""
    return {**about, "rows": [row_data(row) for row in rows], "means": [asdict(mean) for mean in means(rows)]}
