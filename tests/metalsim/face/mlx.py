# SPDX-License-Identifier: MIT
"""MLX's own kernels on the face: Apple's GPUs run them, so the face must take them and compute them right.

    python mlx.py LIBRARY  # downloads the macOS wheel of mlx-metal by pip, and compares with fp64; exit 77: no network

The wheel's headers are used unchanged. Kernels that call theirs are added, since MLX instantiates its own in a way that
plain clang does not parse. Nothing of the wheel is kept.
"""

from __future__ import annotations

import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from run import Face, Library

WHEEL = "mlx-metal==0.32.4"
KERNELS = "mlx/backend/metal/kernels/"
HEADERS = (
    "complex.h",
    "steel/gemm/gemm.h",
    "steel/gemm/kernels/steel_gemm_fused.h",
    "steel/conv/conv.h",
    "steel/conv/kernels/steel_conv.h",
)
INCLUDE = re.compile(r'\s*#\s*include\s*"([^"]+)"')
VERSION = 310  # MLX needs bfloat
FIRST = """#include <metal_stdlib>
using namespace metal;
METAL_FUNC ulong elem_to_loc(uint at, constant const int *shape, constant const int64_t *strides, int dimensions) {
  ulong element = 0;
  for (int i = dimensions - 1; i >= 0; at /= shape[i], i--) element += (at % shape[i]) * strides[i];
  return element;
}
"""

INPUTS = """uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint3 group [[threadgroup_position_in_grid]], uint3 position [[thread_position_in_threadgroup]]"""

GEMM = """
kernel void gemm_{a}{b}_{bm}_{bn}(const device half *A [[buffer(0)]], const device half *B [[buffer(1)]],
    const device half *C [[buffer(2), function_constant(use_out_source)]], device half *D [[buffer(3)]],
    const constant GEMMParams *params [[buffer(4)]],
    const constant GEMMAddMMParams *add [[buffer(5), function_constant(use_out_source)]],
    const constant int *shape [[buffer(6), function_constant(has_batch)]],
    const constant int64_t *strides [[buffer(7), function_constant(has_batch)]], INPUTS) {{
  gemm<half, {bm}, {bn}, {bk}, {wm}, {wn}, {transpose_a}, {transpose_b}>(
      A, B, C, D, params, add, shape, strides, lane, simdgroup, group, position);
}}
""".replace("INPUTS", INPUTS)

CONV = """
kernel void conv_{name}(const device half *X [[buffer(0)]], const device half *W [[buffer(1)]],
    device half *Y [[buffer(2)]], const constant MLXConvParams<2> *params [[buffer(3)]],
    const constant ImplicitGemmConv2DParams *gemm [[buffer(4)]], INPUTS) {{
  implicit_gemm_conv_2d<half, {bm}, {bn}, 16, 2, 2, {channels}, {small}>(
      X, W, Y, params, gemm, group, position, simdgroup, lane);
}}
""".replace("INPUTS", INPUTS)


class OfflineError(Exception):
    """The wheel could not be had."""


# ---- The source ----------------------------------------------------------------------------------
def download(folder: Path) -> Path:
    """Puts the wheel's headers into the folder."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary=:all:",
    ]
    command = [*pip, "--platform", "macosx_14_0_arm64", "--dest", str(folder), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OfflineError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "pip failed")
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(folder, [name for name in wheel.namelist() if "/include/mlx/" in name])
    return folder / "mlx" / "include"


def expanded(root: Path, name: str, seen: set[str]) -> Iterator[str]:
    """The lines of a header, its own includes in their place."""
    if name in seen:
        return
    seen.add(name)
    yield f'#line 1 "{Path(name).name}"'
    for number, line in enumerate((root / name).read_text(encoding="utf-8").splitlines(), 1):
        if include := INCLUDE.match(line):
            yield from expanded(root, include[1], seen)
            yield f'#line {number + 1} "{Path(name).name}"'
        elif line.strip() != "#pragma once":
            yield line


TILES = ((64, 64, 16, 2, 2), (32, 32, 16, 2, 2), (64, 32, 32, 2, 2), (32, 64, 16, 1, 2))


def source(root: Path) -> str:
    """One self-contained text: MLX's headers, and kernels that call theirs."""
    seen: set[str] = set()
    lines = [FIRST, *(line for name in HEADERS for line in expanded(root, KERNELS + name, seen)), '#line 1 "kernels"']
    for a, b in ("nn", "nt", "tn", "tt"):
        flags = {"transpose_a": str(a == "t").lower(), "transpose_b": str(b == "t").lower()}
        lines += [GEMM.format(a=a, b=b, bm=bm, bn=bn, bk=bk, wm=wm, wn=wn, **flags) for bm, bn, bk, wm, wn in TILES]
    for name, channels, small in (("large", 0, "false"), ("small", 0, "true"), ("4", 4, "true")):
        lines.append(CONV.format(name=name, bm=32, bn=32, channels=channels, small=small))
    return "\n".join(lines)


# ---- The problems --------------------------------------------------------------------------------
def halves(count: int, seed: int) -> array[int]:
    """Random fp16 values, as their bits."""
    numbers = random.Random(seed)
    return array(
        "H", struct.unpack(f"<{count}H", struct.pack(f"<{count}e", *(numbers.gauss(0, 1) for _ in range(count))))
    )


def floats(bits: array[int]) -> tuple[float, ...]:
    return struct.unpack(f"<{len(bits)}e", bits.tobytes())


def close(got: float, exact: float, magnitude: float) -> bool:
    """Within one rounding to fp16 and the error of fp32 sums."""
    return abs(got - exact) <= 2.0**-11 * abs(exact) + 2.0**-15 * magnitude + 2.0**-25


@dataclass
class Gemm:
    """D = op(A) op(B), or alpha * op(A) op(B) + beta * C; m x n, over k."""

    m: int
    n: int
    k: int
    form: str = "nn"
    tile: tuple[int, int, int, int, int] = TILES[0]
    alpha: float = 1.0
    beta: float = 0.0
    values: dict[str, array[int]] = field(default_factory=dict, repr=False)

    def run(self, library: Library) -> dict[str, int]:
        bm, bn, bk, wm, wn = self.tile
        m, n, k = self.m, self.n, self.k
        lda, ldb = (m if self.form[0] == "t" else k), (k if self.form[1] == "t" else n)
        nothing = array("H", [0x7E00] * (m * n))
        v = self.values = {"A": halves(m * k, 1), "B": halves(k * n, 2), "C": halves(m * n, 3), "D": nothing}
        tiles_n, tiles_m = -(-n // bn), -(-m // bm)
        params = struct.pack("<8i3q4i", m, n, k, lda, ldb, n, tiles_n, tiles_m, 0, 0, 0, 0, k // bk, 0, 0)
        add = struct.pack("<2iq2f", n, 1, 0, self.alpha, self.beta)
        axpby = bool(self.beta)
        flags = {10: False, 100: axpby, 110: axpby, 200: m % bm == 0, 201: n % bn == 0, 202: k % bk == 0}
        return library.run(
            f"gemm_{self.form}_{bm}_{bn}",
            {0: v["A"], 1: v["B"], 2: v["C"], 3: v["D"], 4: params, 5: add},
            (tiles_n, tiles_m, 1),
            (32, wn, wm),
            {index: ("bool", value) for index, value in flags.items()},
        )

    def faults(self) -> int:
        m, n, k = self.m, self.n, self.k
        left, right, source, got = (floats(self.values[name]) for name in "ABCD")
        rows = [[left[p * m + i] if self.form[0] == "t" else left[i * k + p] for p in range(k)] for i in range(m)]
        columns = [[right[j * k + p] if self.form[1] == "t" else right[p * n + j] for p in range(k)] for j in range(n)]
        bad = 0
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                products = [a * b for a, b in zip(row, column, strict=True)]
                added = self.beta * source[i * n + j]
                size = abs(self.alpha) * sum(map(abs, products)) + 40 * abs(added)  # MLX rounds beta * C to half
                bad += not close(got[i * n + j], self.alpha * sum(products) + added, size)
        return bad


@dataclass
class Conv:
    """Y = conv(X, W) in NHWC, weights [outputs, kernel, kernel, channels]."""

    batch: int
    size: int
    channels: int
    outputs: int
    kernel: int
    stride: int = 1
    padding: int = 0
    name: str = "small"
    values: dict[str, array[int]] = field(default_factory=dict, repr=False)

    @property
    def out(self) -> int:
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    def run(self, library: Library) -> dict[str, int]:
        n, h, c, o, k, out = self.batch, self.size, self.channels, self.outputs, self.kernel, self.out
        nothing = array("H", [0x7E00] * (n * out * out * o))
        v = self.values = {"X": halves(n * h * h * c, 1), "W": halves(o * k * k * c, 2), "Y": nothing}
        strides = [h * h * c, h * c, c, 1, k * k * c, k * c, c, 1, out * out * o, out * o, o, 1]
        pairs = [h, h, k, k, out, out, self.stride, self.stride, self.padding, self.padding, 1, 1, 1, 1]
        params = struct.pack("<3i14i4x12qi?3x", n, c, o, *pairs, *strides, 1, False)
        pixels, terms = n * out * out, k * k * c
        steps = -(-terms // 16) if c < 16 else k * k * -(-c // 16)
        jump_w, row = c, h * c
        jumps = [jump_w, row - (k - 1) * jump_w, 16 - (k - 1) * row - (k - 1) * jump_w]
        gemm = struct.pack("<10i", pixels, o, terms, steps, *jumps, -(-o // 32), -(-pixels // 32), 0)
        buffers = {0: v["X"], 1: v["W"], 2: v["Y"], 3: params, 4: gemm}
        return library.run(f"conv_{self.name}", buffers, (-(-o // 32), -(-pixels // 32), 1), (32, 2, 2))

    def faults(self) -> int:
        h, c, o, k, out = self.size, self.channels, self.outputs, self.kernel, self.out
        image, weight, got = (floats(self.values[name]) for name in "XWY")
        bad = 0
        for at, value in enumerate(got):
            n, y, x, f = at // (out * out * o), at // (out * o) % out, at // o % out, at % o
            products = [
                image[((n * h + iy) * h + ix) * c + ic] * weight[((f * k + ky) * k + kx) * c + ic]
                for ky in range(k)
                for kx in range(k)
                if 0 <= (iy := y * self.stride - self.padding + ky) < h
                if 0 <= (ix := x * self.stride - self.padding + kx) < h
                for ic in range(c)
            ]
            bad += not close(value, sum(products), sum(map(abs, products)))
        return bad


PROBLEMS: list[Gemm | Conv] = [
    Gemm(64, 64, 32),
    Gemm(70, 33, 37),
    Gemm(33, 70, 40, "nt"),
    Gemm(65, 40, 17, "tn"),
    Gemm(40, 65, 50, "tt", TILES[1]),
    Gemm(64, 64, 64, "nt", TILES[2]),
    Gemm(31, 65, 33, "nn", TILES[3]),
    Gemm(64, 64, 32, "nn", TILES[0], 0.5, 2.0),
    Conv(2, 7, 16, 32, 3, padding=1),
    Conv(1, 9, 32, 64, 3, stride=2, padding=1, name="large"),
    Conv(2, 8, 4, 32, 3, padding=1, name="4"),
    Conv(1, 6, 16, 32, 1),
]


def check(library: Library) -> int:
    """Runs all problems; returns how many had faults."""
    failed = 0
    for problem in PROBLEMS:
        counters = problem.run(library)
        faults = problem.faults()
        problem.values.clear()
        state = "FAIL" if faults else "ok  "
        print(f"{state} {problem}: {faults} wrong, {counters['multiply_accumulates']} products of matrices", flush=True)
        failed += bool(faults)
    return failed


def main(path: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        try:
            text = source(download(Path(folder)))
        except OfflineError as reason:
            print(f"SKIP: {WHEEL} could not be downloaded: {reason}")
            return 77
    failed = check(Face(path).library(text, VERSION))
    if os.environ.get("METALSIM_LANE_MAP") == "permuted":  # MLX relies on Apple's map, so all must fail here
        return failed != len(PROBLEMS)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
