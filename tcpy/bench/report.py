"""The result as tables for people, and the bar while they wait."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from .measure import Entry, Ratio
from .rows import Row
from .summary import YARDSTICK, Mean, means, title

_HEADER = """\
{device}, {cpus} CPUs; {system}; load {load:.1f} before and {load_after:.1f} after
tcpy {tcpy}: {backend} {isa}, {kernel}, {threads} threads; Python {python}, NumPy {numpy}
{title}: {rounds} rounds, {budget:g} s for each layout of a peer in a row
yardstick: {yardstick}; measured on all threads beside each row"""
_MEMORY = {
    True: "the allocator keeps freed memory (mallopt), so that none of them pays for fresh pages",
    False: "some may pay for fresh pages",
}

_LEGEND = """\
ratio: a peer's time over tcpy's, round by round, in its faster layout; n: rounds, where few could count
~: another process took the CPU in every sample, so that all count; left out of the means"""


def number(value: float) -> str:
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def header(about: dict[str, Any]) -> Iterator[str]:
    """What was measured, and on what."""
    yield from _HEADER.format(**about, title=title(about)).splitlines()
    yield f"results are new arrays; {_MEMORY[about['freed_memory_kept']]}"
    yield from (f"{name}: {text}" for name, text in about["peers"].items())
    yield from (f"{name}: absent, {text}" for name, text in about["absent"].items())
    yield from (f"{name}={value}" for name, value in about["environment"].items())


def _table(columns: Iterable[str], left: Iterable[int]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, name in enumerate(columns):
        table.add_column(name, justify="left" if place in left else "right", no_wrap=place in left, overflow="fold")
    return table


def _time(entry: Entry, unit: float) -> str:
    return ("~" if entry.noisy else "") + number(entry.median * unit)


def _share(row: Row) -> str:
    return ("~" if row.ours.noisy or row.yardstick.noisy else "") + f"{row.of_yardstick:.0%}"


def _rates(row: Row, peer: str) -> str:
    return " ".join(number(row.gflops(entry)) for entry in row.peers.get(peer, {}).values()) or "-"


def _spread(quartiles: Ratio | None, rounds: int) -> str:
    if quartiles is None:
        return "-"
    few = f" n={quartiles.rounds}" if quartiles.rounds < rounds / 2 else ""
    mark = "~" if quartiles.noisy else ""
    return f"{mark}{number(quartiles.median)} ({number(quartiles.low)}-{number(quartiles.high)}){few}"


def speed_table(rows: Sequence[Row], peers: Sequence[str], rounds: int) -> Table:
    """A line for each case and operation, two columns for each peer."""
    pairs = [column for peer in peers for column in (f"{peer}\nGFLOP/s", "\nratio (quartiles)")]
    table = _table(["\ncase", "\nop", "\nx", "tcpy\nms", "\nGFLOP/s", "of yard-\nstick", *pairs], (0, 1))
    for row in rows:
        cells = [str(row.case), row.op, str(row.case.count)]
        if row.right:
            cells += [_time(row.ours, 1e3), number(row.gflops(row.ours)), _share(row)]
            cells += [text for peer in peers for text in (_rates(row, peer), _spread(row.ratio(peer), rounds))]
        else:
            cells.append("WRONG")
        table.add_row(*cells)
    return table


def overhead_table(rows: Sequence[Row], peers: Sequence[str]) -> Table:
    """Microseconds of a call, by the way of calling."""
    ways = list(dict.fromkeys(way for row in rows for way in row.ways))
    table = _table(["us of a call", "op", "arrays", *ways, *peers], (0, 1))
    for row in rows:
        entries = [row.ours, *row.ways.values(), *(row.faster(peer) for peer in peers)]
        times = [_time(entry, 1e6) if entry else "-" for entry in entries] if row.right else ["WRONG"]
        table.add_row(str(row.case), row.op, *times)
    return table


def mean_table(means: Sequence[Mean]) -> Table:
    table = _table(
        ["op", "tcpy against", "rows", "left out ~", "geometric mean", "weighted", "lowest", "at"], (0, 1, 7)
    )
    for mean in means:
        figures = mean.plain, mean.weighted, mean.lowest
        texts = [f"{figure:.0%}" if mean.against == YARDSTICK else number(figure) for figure in figures]
        table.add_row(mean.op, mean.against, str(mean.rows), str(mean.left_out), *texts, mean.lowest_case)
    return table


def notes(rows: Sequence[Row]) -> Iterator[str]:
    """What a reader of the table should know."""
    for row in rows:
        if not row.right:
            yield f"WRONG: {row.case} {row.op}: the error is {row.excess:.3g} times what is allowed; not timed"
        for name, reason in row.missing.items():
            yield f"{name}: {row.case} {row.op}: {reason}"
    entries = [entry for row in rows for entry in row.entries()]
    samples, dropped = sum(len(entry.samples) for entry in entries), sum(entry.dropped for entry in entries)
    yield f"{dropped} of {samples} samples dropped: another process took the CPU meanwhile"


def show(about: dict[str, Any], rows: Sequence[Row]) -> None:
    """Print everything, as wide as it is where that is no terminal."""
    peers = list(about["peers"])
    by_way = any(row.ways for row in rows)
    table = overhead_table(rows, peers) if by_way else speed_table(rows, peers, about["rounds"])
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = 1000  # as wide as it is
    console.print(*header(about), "", sep="\n")
    console.print(table)
    if not by_way:
        console.print("", mean_table(means(rows)), "", _LEGEND, sep="\n")
    console.print(*notes(rows), sep="\n")


def followed(rows: Iterable[Row], total: int) -> Iterator[Row]:
    """The rows as they come, with a bar on a terminal."""
    console = Console(stderr=True)
    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=total)
        for row in rows:
            progress.update(task, advance=1, description=f"{row.case} {row.op}")
            yield row
