# SPDX-License-Identifier: MIT
"""Counts of MLX's steel kernels on the face, for the problems of roofline.py, with the tiles that MLX takes for a chip.

The headers come unchanged from the wheel that face/mlx.py downloads. As with our own kernels, one threadgroup of each
kind runs. What only moves elements (sums of a split K, patches for dW) is counted by its formula. In MLX's favour, a
split K is counted without its rest, and convolutions by their first tiles, where padding saves more reads than
elsewhere. Winograd is left out, since it can't keep our accuracy.
"""

from __future__ import annotations

import mmap
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "face"))
import mlx
from run import COUNTERS, Face, Library

__all__ = ["COUNTERS", "Counted", "Face", "Image", "Steel", "mlx"]

GEMM_HEADERS = ("steel/gemm/gemm.h", "steel/gemm/kernels/steel_gemm_fused.h", "steel/gemm/kernels/steel_gemm_splitk.h")
CONV_HEADERS = ("steel/conv/conv.h", "steel/conv/kernels/steel_conv.h", "steel/conv/kernels/steel_conv_general.h")

SPLIT = """
kernel void split_{a}{b}(const device half *A [[buffer(0)]], const device half *B [[buffer(1)]],
    device float *C [[buffer(2)]], const constant GEMMSpiltKParams *params [[buffer(3)]], INPUTS) {{
  gemm_splitk<half, float, 32, 32, 16, 2, 2, {transpose_a}, {transpose_b}, false, true>(
      A, B, C, params, lane, simdgroup, group, position);
}}
""".replace("INPUTS", mlx.INPUTS)

GENERAL = """
kernel void general_{bm}_{bn}(const device half *X [[buffer(0)]], const device half *W [[buffer(1)]],
    device half *Y [[buffer(2)]], const constant MLXConvParams<2> *params [[buffer(3)]],
    const constant ImplicitGemmConv2DParams *gemm [[buffer(4)]],
    const constant Conv2DGeneralJumpParams *jump [[buffer(5)]],
    const constant Conv2DGeneralBaseInfo *base_h [[buffer(6)]],
    const constant Conv2DGeneralBaseInfo *base_w [[buffer(7)]], INPUTS) {{
  implicit_gemm_conv_2d_general<half, {bm}, {bn}, 16, 2, 2>(
      X, W, Y, params, gemm, jump, base_h, base_w, group, position, simdgroup, lane);
}}
""".replace("INPUTS", mlx.INPUTS)

Tile = tuple[int, int, int, int, int]  # M, N, K, simdgroups along M and N
LARGE: Tile = (64, 64, 16, 1, 2)
TILES: tuple[Tile, ...] = (LARGE, (64, 64, 16, 2, 2), (64, 32, 32, 2, 2), (32, 64, 16, 1, 2))
FORMS = ("nn", "nt", "tn")
SAMPLES = 4  # row tiles of a convolution that run


@dataclass(frozen=True)
class Counted:
    """One dispatch: counters of all its threadgroups."""

    kernel: str
    threads: int
    counters: Counter[str]


def zeros(elements: int, size: int = 2) -> mmap.mmap:
    """Memory of which only what is touched takes space."""
    return mmap.mmap(-1, elements * size)


def scaled(counters: dict[str, int], count: int, of: int = 1) -> Counter[str]:
    return Counter({name: value * count // of for name, value in counters.items()})


def parts(size: int, tile: int) -> Iterator[tuple[int, int]]:
    """Extents of tiles along a side, each with how many there are."""
    if size // tile:
        yield tile, size // tile
    if size % tile:
        yield size % tile, 1


# ---- The choices of MLX's host code --------------------------------------------------------------
def gemm_tile(chip: str, form: str, m: int, n: int, k: int) -> Tile:
    """The tile of the fused kernel; chip: the last letter of the architecture's name."""
    if chip == "s":
        return 64, 64, 16, 2, 2
    if chip == "d" and m * n >= 1 << 20:
        if 2 * max(m, n) > k:
            return LARGE
        return (64, 32, 32, 2, 2) if form == "nt" else (32, 64, 16, 1, 2)
    return (64, 32, 32, 2, 2) if form == "nt" else LARGE


def splits(chip: str, m: int, n: int, k: int) -> int:
    """Parts that K is cut into; 0: the fused kernel runs."""
    few = ceil(m / 16) * ceil(n / 16) <= (1024 if chip == "g" else 2048)
    if not few or k // 16 < 8 or k < max(m, n):
        return 0
    wanted = k // 16 // (ceil(m / 32) * ceil(n / 32))
    return min(max(2, 1 << max(wanted - 1, 0).bit_length()), 32)


def conv_tile(m: int, n: int, channels: int, *, general: bool) -> tuple[int, int]:
    bm = 64 if m >= 8192 and channels >= 64 else 32
    wide = bm == 64 and n >= 64 if general else bm == 64 or n >= 64
    return bm, 64 if wide else 32


# ---- The kernels ---------------------------------------------------------------------------------
def text(root: Path, headers: tuple[str, ...], kernels: list[str]) -> str:
    seen: set[str] = set()
    lines = (line for name in ("complex.h", *headers) for line in mlx.expanded(root, mlx.KERNELS + name, seen))
    return "\n".join([mlx.FIRST, *lines, "using namespace mlx::steel;", *kernels])


def gemm_kernels() -> list[str]:
    kernels = []
    for form in FORMS:
        flags = {"transpose_a": str(form[0] == "t").lower(), "transpose_b": str(form[1] == "t").lower()}
        kernels.append(SPLIT.format(a=form[0], b=form[1], **flags))
        for bm, bn, bk, wm, wn in TILES:
            kernels.append(mlx.GEMM.format(a=form, b=f"_{wm}", bm=bm, bn=bn, bk=bk, wm=wm, wn=wn, **flags))
    return kernels


def conv_kernels() -> list[str]:
    kernels = [mlx.CONV.format(name="32_32_3", bm=32, bn=32, channels=3, small="false")]
    kernels.append(mlx.CONV.format(name="32_64_3", bm=32, bn=64, channels=3, small="false"))
    for bm, bn in ((32, 32), (32, 64), (64, 64)):
        kernels.append(mlx.CONV.format(name=f"{bm}_{bn}_0", bm=bm, bn=bn, channels=0, small="true"))
    return kernels + [GENERAL.format(bm=bm, bn=bn) for bm, bn in ((32, 32), (64, 32), (64, 64))]


@dataclass(frozen=True)
class Image:
    """A convolution as MLX's kernels see it: NHWC, weights [O, kH, kW, C]; dilation: of the input."""

    batch: int
    channels: int
    outputs: int
    size: int
    out: int
    kernel: int
    stride: int
    padding: int
    dilation: int = 1

    def params(self) -> bytes:
        n, c, o, h, out, k = self.batch, self.channels, self.outputs, self.size, self.out, self.kernel
        pairs = [size for size in (h, k, out, self.stride, self.padding, 1, self.dilation) for _ in range(2)]
        strides = [h * h * c, h * c, c, 1, k * k * c, k * c, c, 1, out * out * o, out * o, o, 1]
        return struct.pack("<3i14i4x12qi?3x", n, c, o, *pairs, *strides, 1, False)

    def gemm_params(self, m: int, bm: int, bn: int, steps: int) -> bytes:
        row, k = self.size * self.channels, self.kernel
        jump_h, jump_c = row - (k - 1) * self.channels, 16 - (k - 1) * row - (k - 1) * self.channels
        size = (m, self.outputs, k * k * self.channels, steps, self.channels, jump_h, jump_c)
        return struct.pack("<10i", *size, ceil(self.outputs / bn), ceil(m / bm), 0)

    def buffers(self) -> dict[int, mmap.mmap]:
        n, c, o = self.batch, self.channels, self.outputs
        elements = (n * self.size**2 * c, o * self.kernel**2 * c, n * self.out**2 * o)
        return {index: zeros(count) for index, count in enumerate(elements)}


class Steel:
    """The kernels, compiled; each problem's counts are kept."""

    def __init__(self, face: Face, root: Path) -> None:
        self.gemm_library: Library = face.library(text(root, GEMM_HEADERS, gemm_kernels()), mlx.VERSION)
        self.conv_library: Library = face.library(text(root, CONV_HEADERS, conv_kernels()), mlx.VERSION)
        self.kept: dict[object, list[Counted]] = {}

    # ---- GEMM ----
    def gemm(self, chip: str, form: str, m: int, n: int, k: int) -> list[Counted]:
        count = splits(chip, m, n, k)
        tile = gemm_tile(chip, form, m, n, k)
        key = (form, m, n, k, count or tile)
        if key not in self.kept:
            self.kept[key] = self.split(form, m, n, k, count) if count else [self.fused(form, m, n, k, tile)]
        return self.kept[key]

    def fused(self, form: str, m: int, n: int, k: int, tile: Tile) -> Counted:
        bm, bn, bk, wm, wn = tile
        lda, ldb = (m if form[0] == "t" else k), (k if form[1] == "t" else n)
        buffers = {0: zeros(m * k), 1: zeros(k * n), 2: zeros(1), 3: zeros(m * n), 5: b"\0" * 24}
        flags = {10: False, 100: False, 110: False, 200: m % bm == 0, 201: n % bn == 0, 202: k % bk == 0}
        name, sums = f"gemm_{form}_{wm}_{bm}_{bn}", Counter[str]()
        for rows, row_tiles in parts(m, bm):
            for columns, column_tiles in parts(n, bn):
                params = struct.pack("<8i3q4i", rows, columns, k, lda, ldb, n, 1, 1, 0, 0, 0, 0, k // bk, 0, 0)
                constants = {index: ("bool", value) for index, value in flags.items()}
                one = self.gemm_library.run(name, {**buffers, 4: params}, (1, 1, 1), (32, wn, wm), constants)
                sums += scaled(one, row_tiles * column_tiles)
        return Counted(f"{bm}x{bn}", 32 * wm * wn, sums)

    def split(self, form: str, m: int, n: int, k: int, count: int) -> list[Counted]:
        lda, ldb = (m if form[0] == "t" else k), (k if form[1] == "t" else n)
        steps = k // 16 // count
        buffers = {0: zeros(m * k), 1: zeros(k * n), 2: zeros(count * m * n, 4)}
        sums = Counter[str]()
        for rows, row_tiles in parts(m, 32):
            for columns, column_tiles in parts(n, 32):
                size = (rows, columns, steps * 16 * count, lda, ldb, n, 1, 1, count, m * n, steps * 16, 0, steps)
                params = struct.pack("<13i", *size)
                one = self.gemm_library.run(f"split_{form}", {**buffers, 3: params}, (1, 1, 1), (32, 2, 2))
                sums += scaled(one, row_tiles * column_tiles * count)
        added = {"device_read": 4 * count, "device_written": 2, "device_accesses": count + 1}  # for each element
        return [Counted(f"32x32 /{count}", 128, sums), Counted("accum", 1, scaled(added, m * n))]

    # ---- Convolution ----
    def weight(self, chip: str, image: Image) -> list[Counted]:
        """dW: a product with the patches of the input, which are copied unless they are the input itself."""
        columns, pixels = image.kernel**2 * image.channels, image.batch * image.out**2
        product = self.gemm(chip, "tn", image.outputs, columns, pixels)
        if image.kernel == image.stride == 1:
            return product
        return [Counted("copy", 1, scaled({"device_read": 2, "device_written": 2}, columns * pixels)), *product]

    def conv(self, image: Image) -> list[Counted]:
        if image not in self.kept:
            self.kept[image] = [self.dilated(image) if image.dilation > 1 else self.implicit(image)]
        return self.kept[image]

    def implicit(self, image: Image) -> Counted:
        m, c, k = image.batch * image.out**2, image.channels, image.kernel
        few = c if c <= 4 else 0
        bm, bn = conv_tile(m, image.outputs, c, general=False)
        steps = ceil(k * k * 4 / 16) if few else k * k * ceil(c / 16)
        buffers = {**image.buffers(), 3: image.params(), 4: image.gemm_params(m, bm, bn, steps)}
        return self.tiles(f"conv_{bm}_{bn}_{few}", buffers, bm, bn, m, image.outputs)

    def dilated(self, image: Image) -> Counted:
        """The general kernel: pixels of the output by phases of the dilation, each with the taps that see an input."""
        d, adjusted = image.dilation, ceil(image.out / image.dilation)
        m = image.batch * adjusted**2
        bm, bn = conv_tile(m, image.outputs, image.channels, general=True)
        base = b""
        for phase in range(d):
            first = (image.padding - phase) % d
            base += struct.pack("<2i", min(first, image.kernel), ceil(max(image.kernel - first, 0) / d))
        gemm_params = image.gemm_params(image.batch * image.out**2, bm, bn, ceil(image.channels / 16))
        jump = struct.pack("<8i", d, d, d, d, adjusted, adjusted, adjusted**2, m)
        buffers = {**image.buffers(), 3: image.params(), 4: gemm_params, 5: jump, 6: base, 7: base}
        return self.tiles(f"general_{bm}_{bn}", buffers, bm, bn, m, image.outputs, d * d)

    def tiles(
        self, name: str, buffers: dict[int, object], bm: int, bn: int, m: int, n: int, phases: int = 1
    ) -> Counted:
        """All tiles, from the first ones of each row of tiles that differ."""
        rows, columns = ceil(m / bm), ceil(n / bn)
        ran = min(rows, SAMPLES)
        constants = {200: ("bool", True)}
        one = self.conv_library.run(name, buffers, (1, ran, phases), (32, 2, 2), constants)
        return Counted(f"{bm}x{bn}", 128, scaled(one, rows * columns, ran))
