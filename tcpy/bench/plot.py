"""The result as a picture: how many times faster than each peer, and a roofline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from .problems import moved_bytes
from .rows import Row
from .suites import Case
from .summary import title

INK, PALE = "#2b2d42", "#b8c4d6"
COLORS = ("#d1495b", "#edae49", "#2a9d8f", "#6a4c93")
MARKS = {"forward": ("o", "#00798c"), "dx": ("s", "#d1495b"), "dw": ("^", "#6a4c93"), "gemm": ("D", INK)}


def _logarithmic(axis: Any) -> None:
    """Numbers as people write them."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _clean(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=PALE, linewidth=0.5)
    axes.set_axisbelow(True)


def _ratios(axes: Any, op: str, rows: Sequence[Row], cases: Sequence[Case], peers: Sequence[str]) -> None:
    """Bars of one operation, up and down from 1: for each case its peers side by side, pale where they are noisy."""
    width = 0.8 / max(1, len(peers))
    for place, peer in enumerate(peers):
        bars = [(cases.index(row.case), quartiles) for row in rows if (quartiles := row.ratio(peer))]
        x = [number + (place - (len(peers) - 1) / 2) * width for number, _ in bars]
        median = np.array([quartiles.median for _, quartiles in bars])
        spread = [median - [quartiles.low for _, quartiles in bars], [quartiles.high for _, quartiles in bars] - median]
        drawn = axes.bar(x, median - 1, width, bottom=1, color=COLORS[place])
        for bar, (_, quartiles) in zip(drawn, bars, strict=True):
            bar.set_alpha(0.3 if quartiles.noisy else 1)
        axes.errorbar(x, median, spread, fmt="none", ecolor=INK, elinewidth=0.8)
    axes.axhline(1, color=INK, linewidth=1)
    axes.set(yscale="log", ylabel=f"{op}: times faster")
    axes.set_xticks(range(len(cases)), [str(case) for case in cases], rotation=45, ha="right", fontsize=8)
    axes.margins(x=0.01, y=0.1)
    _logarithmic(axes.yaxis)
    _clean(axes)


def _roofline(axes: Any, rows: Sequence[Row], yardstick: float, bandwidth: float) -> None:
    """Each row's rate by its intensity, under what software reaches on this machine in products and in copies."""
    intensity = np.array([row.case.flops / moved_bytes(row.case) for row in rows])
    x = np.geomspace(min(intensity.min(), yardstick / bandwidth) / 2, intensity.max() * 2, 200)
    axes.plot(x, np.minimum(yardstick, x * bandwidth) / 1e9, color=INK, label="yardstick, and copied bytes")
    for op, (marker, color) in MARKS.items():
        chosen = [number for number, row in enumerate(rows) if row.op == op]
        rates = [rows[number].gflops(rows[number].ours) for number in chosen]
        if chosen:
            axes.scatter(intensity[chosen], rates, s=24, marker=marker, color=color, label=f"tcpy {op}", zorder=3)
    lowest = min(row.gflops(row.ours) for row in rows)
    axes.set(
        xscale="log",
        yscale="log",
        ylim=(lowest / 2, None),
        xlabel="FLOP for each byte that has to move",
        ylabel="GFLOP/s",
    )
    axes.legend(frameon=False, fontsize=9)
    _logarithmic(axes.xaxis)
    _logarithmic(axes.yaxis)
    _clean(axes)


def draw(out: Path, about: dict[str, Any], rows: Sequence[Row]) -> None:
    """Bars for each operation on the left, the roofline on the right."""
    rows, peers = [row for row in rows if row.right], list(about["peers"])
    ops, cases = list(dict.fromkeys(row.op for row in rows)), list(dict.fromkeys(row.case for row in rows))
    figure = Figure(figsize=(17, 2 + 3 * max(2, len(ops))), layout="constrained")
    parts: Any = figure.subfigures(1, 2, width_ratios=[2.2, 1])
    bars = parts[0].subplots(len(ops), sharex=True, squeeze=False)[:, 0]
    for axes, op in zip(bars, ops, strict=True):
        _ratios(axes, op, [row for row in rows if row.op == op], cases, peers)
    if peers:
        keys = [Patch(color=color, label=f"than {peer}") for peer, color in zip(peers, COLORS, strict=False)]
        bars[0].legend(handles=keys, frameon=False, ncols=len(peers), loc="lower left", bbox_to_anchor=(0, 1))
    yardstick = float(np.median([row.yardstick_flops / row.yardstick.median for row in rows]))
    _roofline(parts[1].subplots(), rows, yardstick, about["copy_bytes_per_second"])
    machine = "{device}: tcpy {tcpy}, {isa}, {threads} threads".format_map(about)
    figure.suptitle(f"{title(about)}, {machine}", color=INK)
    figure.savefig(out, dpi=120)
