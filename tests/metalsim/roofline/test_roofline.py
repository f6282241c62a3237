# SPDX-License-Identifier: MIT
"""The model and the choices of the roofline; test_count.c has the counts, the meson test `roofline` the results."""

from collections import Counter

import pytest
import steel
from model import Bound, Chip, bound, issue_cycles, whole_lines
from roofline import LAYERS, Conv, Gemm, Result, Work, bounds_table, counts_table, problems, work_of

CHIP = Chip("M1", "g", 8, 1.25, 64)
STEPS = [
    steel.Counted(
        "tc_gemm_nn_64x64",
        128,
        Counter(
            multiply_accumulates=1000, matrix_moves=100, device_accesses=320, threadgroup_barriers=5, device_read=640
        ),
    ),
    steel.Counted("tc_gemm_reduce", 256, Counter(device_accesses=32, device_written=64, threadgroup_read=128)),
]


def test_issue() -> None:
    assert issue_cycles(STEPS[0].counters, 128) == 18 * 1000 + 3 * 100 + 5 * 10 + 10 * 5 * 4
    assert issue_cycles(STEPS[1].counters, 256) == 5


def test_work() -> None:
    work = work_of(STEPS, CHIP, once=300)
    assert (work.kernel, work.device, work.threadgroup, work.barriers) == ("64x64", 704, 128, 5)
    assert work.share == pytest.approx(18000 / (18550 + 5))
    assert work.bound.issue == pytest.approx(18555 / 4 / 1e10)


def test_bound() -> None:
    limits = bound(CHIP, cycles=4e10, threadgroup=64 * 10**10, once=32 * 10**9, device=96 * 10**9)
    assert limits == Bound(1, 1, 0.5, 1.5)
    assert limits.seconds == 1


@pytest.mark.parametrize(
    ("seconds", "name"),
    [((3, 2, 1, 2), "ALU"), ((3, 2, 1, 4), "ALU*"), ((2, 3, 1, 4), "threadgroup"), ((1, 2, 3, 4), "device")],
)
def test_bound_name(seconds: tuple[float, float, float, float], name: str) -> None:
    assert Bound(*seconds).name == name


def test_sizes() -> None:
    assert whole_lines(129) == 256
    layer = Conv("forward", 3, 64, 224, 7, 2, 3, batch=2)
    assert (layer.out, layer.name) == (112, "Y 3>64 224 7x7 /2")
    assert layer.products == 2 * 112 * 112 * 64 * 3 * 49
    assert layer.once == 2 * (2 * 3 * 224 * 224 + 2 * 64 * 112 * 112 + 64 * 3 * 49)
    assert Gemm(512, "nt").line == "gemm nt 512 512 512"


def test_problems() -> None:
    names = [p.name for p in problems()]
    assert len(set(names)) == len(names) == 8 + 3 * 23


def test_layers() -> None:
    """ResNet-50's convolutions take 4087136256 products an image."""
    times = [1, 1, 3, 4, 2, 1, 1, 4, 1, 3, 3, 1, 1, 6, 1, 5, 5, 1, 1, 3, 1, 2, 2]
    products = [Conv("forward", *layer, batch=1).products for layer in LAYERS]
    assert sum(n * size for n, size in zip(times, products, strict=True)) == 4087136256


@pytest.mark.parametrize(
    ("chip", "form", "size", "tile"),
    [
        ("g", "nn", 1024, (64, 64, 16, 1, 2)),
        ("g", "nt", 1024, (64, 32, 32, 2, 2)),
        ("s", "nt", 4096, (64, 64, 16, 2, 2)),
        ("d", "nt", 4096, (64, 64, 16, 1, 2)),
        ("d", "nt", 512, (64, 32, 32, 2, 2)),
    ],
)
def test_steel_tile(chip: str, form: str, size: int, tile: steel.Tile) -> None:
    assert steel.gemm_tile(chip, form, size, size, size) == tile


@pytest.mark.parametrize(
    ("chip", "sizes", "parts"),
    [("g", (512, 512, 512), 2), ("g", (512, 1024, 1024), 0), ("s", (512, 1024, 1024), 2), ("d", (64, 64, 100352), 32)],
)
def test_steel_splits(chip: str, sizes: tuple[int, int, int], parts: int) -> None:
    assert steel.splits(chip, *sizes) == parts


def test_steel_parts() -> None:
    assert list(steel.parts(130, 64)) == [(64, 2), (2, 1)]
    assert list(steel.parts(64, 64)) == [(64, 1)]
    assert list(steel.parts(5, 64)) == [(5, 1)]


def result(name: str, share: float, device: int, ratio: float) -> Result:
    work = Work("64x64", device, 0, 0, share, Bound(1, 0, 0, 0))
    return Result(
        Gemm(1024, "nn"), Chip(name, "s", 8, 1.25, 64), work, Work("64x64", 100, 0, 0, 1, Bound(2, 0, 0, 0)), ratio
    )


def test_misses() -> None:
    assert list(result("M1", 0.8, 100, 1.3).misses()) == []
    assert len(list(result("M1", 0.79, 101, 1.31).misses())) == 3


def test_tables() -> None:
    same = [result("M1", 0.8, 100, 1.0), result("M2", 0.8, 100, 1.0), result("M4", 0.8, 90, 1.0)]
    rows = counts_table(same)
    assert [row[1] for row in rows[1:]] == ["M1, M2", "M4"]
    assert rows[1][-1] == "80 : 100"
    percent = 100 * 1024**3 / (8 * 1.25e9 * 128)
    assert bounds_table(same[:1])[1] == ["GEMM nn 1024", f"ALU 1e+03 {percent:.0f} % : ALU 2e+03 {percent / 2:.0f} %"]
