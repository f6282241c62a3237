# SPDX-License-Identifier: MIT
"""The paper roofline of the Metal kernels, beside MLX's steel kernels: `ninja -C BUILD roofline`.

    python roofline.py COUNT FACE [--no-steel] [--only WORD]...

COUNT is the program roofline_count of a build with -Dmetal_runtime=sim, FACE its libmetalface.so. Prints tables (on a
terminal by rich, else in Markdown) and what misses the requirements; then the status is 1. MLX's wheel is downloaded.
--only takes the problems whose names contain all these words.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from model import Bound, Chip, bound, device_bytes, issue_cycles, multiply_cycles, threadgroup_bytes, whole_lines
from steel import COUNTERS, Counted, Face, Image, Steel, mlx

CHIPS = {"M1": "g", "M1 Max": "s", "M2 Ultra": "d", "M4 Max": "s"}  # with the letter of the architecture's name
BATCH = 32
RATIO = 1.3  # device bytes over what tiles need, at most
STEEL = {"GEMM": 1.0, "Y": 1.05, "dX": 1.05, "dW": 1.05}  # device bytes over steel's, at most
SHARE = 0.8  # of products in the time of issue, at least, for GEMM from size LARGE on
LARGE = 1024
TENSORS = {"forward": "Y", "backward_input": "dX", "backward_weight": "dW"}

# In and out channels, size, kernel, stride, padding of ResNet-50's convolutions, each once.
LAYERS = (
    (3, 64, 224, 7, 2, 3),
    *((64, 64, 56, 1, 1, 0), (64, 64, 56, 3, 1, 1), (64, 256, 56, 1, 1, 0), (256, 64, 56, 1, 1, 0)),
    *((256, 128, 56, 1, 1, 0), (128, 128, 56, 3, 2, 1), (128, 512, 28, 1, 1, 0), (256, 512, 56, 1, 2, 0)),
    *((512, 128, 28, 1, 1, 0), (128, 128, 28, 3, 1, 1)),
    *((512, 256, 28, 1, 1, 0), (256, 256, 28, 3, 2, 1), (256, 1024, 14, 1, 1, 0), (512, 1024, 28, 1, 2, 0)),
    *((1024, 256, 14, 1, 1, 0), (256, 256, 14, 3, 1, 1)),
    *((1024, 512, 14, 1, 1, 0), (512, 512, 14, 3, 2, 1), (512, 2048, 7, 1, 1, 0), (1024, 2048, 14, 1, 2, 0)),
    *((2048, 512, 7, 1, 1, 0), (512, 512, 7, 3, 1, 1)),
)


# ---- Problems ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Gemm:
    size: int
    form: str

    @property
    def name(self) -> str:
        return f"GEMM {self.form} {self.size}"

    @property
    def line(self) -> str:
        return f"gemm {self.form} {self.size} {self.size} {self.size}"

    @property
    def products(self) -> int:
        return self.size**3

    @property
    def once(self) -> int:
        return 3 * whole_lines(2 * self.size**2)

    def steel(self, kernels: Steel, chip: Chip) -> list[Counted]:
        return kernels.gemm(chip.letter, self.form, self.size, self.size, self.size)


@dataclass(frozen=True)
class Conv:
    op: str
    channels: int
    outputs: int
    size: int
    kernel: int
    stride: int
    padding: int
    batch: int = BATCH

    @property
    def out(self) -> int:
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def name(self) -> str:
        stride = f" /{self.stride}" if self.stride > 1 else ""
        return f"{TENSORS[self.op]} {self.channels}>{self.outputs} {self.size} {self.kernel}x{self.kernel}{stride}"

    @property
    def line(self) -> str:
        size = (self.batch, self.channels, self.outputs, self.size, self.kernel, self.stride, self.padding)
        return " ".join(map(str, (self.op, *size)))

    @property
    def products(self) -> int:
        return self.batch * self.out**2 * self.outputs * self.channels * self.kernel**2

    @property
    def once(self) -> int:
        images = self.batch * self.channels * self.size**2, self.batch * self.outputs * self.out**2
        return sum(whole_lines(2 * elements) for elements in (*images, self.outputs * self.channels * self.kernel**2))

    def steel(self, kernels: Steel, chip: Chip) -> list[Counted]:
        n, c, o, h, k, s, p = self.batch, self.channels, self.outputs, self.size, self.kernel, self.stride, self.padding
        if self.op == "backward_input":
            return kernels.conv(Image(n, o, c, self.out, h, k, 1, k - 1 - p, s))
        image = Image(n, c, o, h, self.out, k, s, p)
        return kernels.conv(image) if self.op == "forward" else kernels.weight(chip.letter, image)


def problems() -> list[Gemm | Conv]:
    gemms = [Gemm(size, form) for form in ("nn", "nt") for size in (512, 1024, 2048, 4096)]
    return [*gemms, *(Conv(op, *layer) for op in TENSORS for layer in LAYERS)]


# ---- Counts --------------------------------------------------------------------------------------
class Ours:
    """The program roofline_count."""

    def __init__(self, program: str) -> None:
        environment = {**os.environ, "METALSIM_CHECK": "1"}  # bytes are counted where accesses are checked
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([program], stdin=pipe, stdout=pipe, text=True, env=environment)

    def ask(self, line: str) -> str:
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)
        return self.answer()

    def answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit("roofline_count ended early")
        return line.strip()

    def chip(self, name: str) -> Chip:
        cores, gigahertz, gigabytes = self.ask(f"chip Apple {name}").split()
        return Chip(name, CHIPS[name], int(cores), float(gigahertz), float(gigabytes))

    def count(self, line: str, chip: Chip) -> tuple[list[Counted], int, int]:
        """All dispatches; of those of tiles the device bytes that they need and those that were counted."""
        steps, needed, moved = [], 0, 0
        answer = self.ask(f"{line} Apple {chip.name}")
        while answer != "end":
            kernel, threads, need, *values = answer.split()
            counters = Counter(dict(zip(COUNTERS, map(int, values), strict=True)))
            steps.append(Counted(kernel, int(threads), counters))
            if int(need):
                needed, moved = needed + int(need), moved + device_bytes(counters)
            answer = self.answer()
        return steps, needed, moved


@dataclass(frozen=True)
class Work:
    """What one side does for a problem: ours, or MLX."""

    kernel: str
    device: int  # bytes
    threadgroup: int  # bytes
    barriers: int
    share: float  # of products in the time of issue
    bound: Bound


def work_of(steps: Sequence[Counted], chip: Chip, once: int) -> Work:
    cycles = sum(issue_cycles(step.counters, step.threads) for step in steps)
    device = sum(device_bytes(step.counters) for step in steps)
    threadgroup = sum(threadgroup_bytes(step.counters) for step in steps)
    main = max(steps, key=lambda step: step.counters["multiply_accumulates"])
    return Work(
        main.kernel.rsplit("_", 1)[-1],
        device,
        threadgroup,
        sum(step.counters["threadgroup_barriers"] for step in steps),
        sum(multiply_cycles(step.counters) for step in steps) / cycles,
        bound(chip, cycles, threadgroup, once, device),
    )


@dataclass(frozen=True)
class Result:
    problem: Gemm | Conv
    chip: Chip
    ours: Work
    steel: Work | None
    ratio: float  # counted device bytes over those that the tiles need

    def misses(self) -> Iterator[str]:
        """Requirements that don't hold."""
        where = f"{self.problem.name} on {self.chip.name}"
        if self.ratio > RATIO:
            yield f"{where}: {self.ratio:.2f} times the device bytes that its tiles need"
        if self.steel and self.ours.device > STEEL[self.problem.name.split()[0]] * self.steel.device:
            yield f"{where}: {self.ours.device / self.steel.device:.2f} times steel's device bytes"
        if isinstance(self.problem, Gemm) and self.problem.size >= LARGE and self.ours.share < SHARE:
            yield f"{where}: products take {100 * self.ours.share:.0f} % of the time of issue"


def result(problem: Gemm | Conv, chip: Chip, ours: Ours, steel: Steel | None) -> Result:
    steps, needed, moved = ours.count(problem.line, chip)
    theirs = work_of(problem.steel(steel, chip), chip, problem.once) if steel else None
    return Result(problem, chip, work_of(steps, chip, problem.once), theirs, moved / needed)


# ---- Tables --------------------------------------------------------------------------------------
def sides(r: Result, show: Callable[[Work], str]) -> str:
    """A cell: ours, and steel's."""
    return " : ".join(show(work) for work in (r.ours, r.steel) if work)


def merged(results: Sequence[Result]) -> Iterator[tuple[str, Result]]:
    """Results that differ in nothing but the chip, with the chips' names."""
    groups: dict[object, list[Result]] = {}
    for r in results:
        key = (r.problem, *((w.kernel, w.device, w.share) for w in (r.ours, r.steel) if w))
        groups.setdefault(key, []).append(r)
    for group in groups.values():
        yield ", ".join(r.chip.name for r in group), group[0]


def counts_table(results: Sequence[Result]) -> list[list[str]]:
    rows = [["problem", "chips", "tile", "device MB", "of need", "threadgroup MB", "barriers, k", "products, %"]]
    for chips, r in merged(results):
        cells = [
            sides(r, lambda w: w.kernel),
            sides(r, lambda w: f"{w.device / 1e6:.1f}"),
            f"{r.ratio:.2f}",
            sides(r, lambda w: f"{w.threadgroup / 1e6:.0f}"),
            sides(r, lambda w: f"{w.barriers / 1e3:.1f}"),
            sides(r, lambda w: f"{100 * w.share:.0f}"),
        ]
        rows.append([r.problem.name, chips, *cells])
    return rows


def limits(work: Work, ideal: float) -> str:
    """ideal: seconds at the chip's peak."""
    return f"{work.bound.name} {1e3 * work.bound.seconds:.3g} {100 * ideal / work.bound.seconds:.0f} %"


def bounds_table(results: Sequence[Result]) -> list[list[str]]:
    rows = [["problem", *CHIPS]]
    cells: dict[str, list[str]] = {}
    for r in results:
        text = sides(r, partial(limits, ideal=r.problem.products / r.chip.peak))
        cells.setdefault(r.problem.name, []).append(text)
    return rows + [[name, *texts] for name, texts in cells.items()]


def show(title: str, rows: list[list[str]]) -> None:
    if sys.stdout.isatty():
        from rich import print as rich_print
        from rich.table import Table

        table = Table(*rows[0], title=title)
        for row in rows[1:]:
            table.add_row(*row)
        rich_print(table)
        return
    print(f"\n{title}\n")
    for row in (rows[0], ["---"] * len(rows[0]), *rows[1:]):
        print(f"| {' | '.join(row)} |")


def tracked(wanted: list[Gemm | Conv]) -> Iterable[Gemm | Conv]:
    """With a bar of progress on a terminal."""
    if not sys.stderr.isatty():
        return wanted
    from rich.console import Console
    from rich.progress import track

    return track(wanted, "problems", console=Console(stderr=True))


# ---- The command ---------------------------------------------------------------------------------
def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count")
    parser.add_argument("face")
    parser.add_argument("--no-steel", action="store_true")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD")
    return parser.parse_args()


def steel_kernels(path: str) -> Steel:
    os.environ["METALSIM_CHECK"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        return Steel(Face(path), mlx.download(Path(folder)))


def main() -> int:
    given = arguments()
    try:
        steel = None if given.no_steel else steel_kernels(given.face)
    except mlx.OfflineError as reason:
        sys.exit(f"{mlx.WHEEL} could not be downloaded ({reason}); --no-steel does without it")
    ours = Ours(given.count)
    chips = [ours.chip(name) for name in CHIPS]
    wanted = [p for p in problems() if all(word in p.name.split() for word in given.only)]
    results = [result(problem, chip, ours, steel) for problem in tracked(wanted) for chip in chips]
    show("Counts" if given.no_steel else "Counts, ours : steel's", counts_table(results))
    show("Bound, ms, % of the chip's peak", bounds_table(results))
    misses = [miss for r in results for miss in r.misses()]
    print("", *misses, f"{len(misses)} misses", sep="\n")
    return len(misses) > 0


if __name__ == "__main__":
    sys.exit(main())
