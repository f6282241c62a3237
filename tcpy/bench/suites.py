"""What is measured: suites of layers and matrix products, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, TypeAlias

# Each operation, and the tensor that it writes; it reads the case's two others.
RESULT = {"forward": "y", "dx": "x", "dw": "weight", "gemm": "c"}


@dataclass(frozen=True)
class Conv:
    """A convolution of square images by square kernels; `count` is how often the network has it."""

    in_channels: int
    out_channels: int
    size: int
    kernel: int
    stride: int = 1
    padding: int = 0
    groups: int = 1
    count: int = 1
    batch: int = 1

    ops: ClassVar = ("forward", "dx", "dw")

    @property
    def out_size(self) -> int:
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Shapes; a gradient has its tensor's."""
        return {
            "x": (self.batch, self.in_channels, self.size, self.size),
            "weight": (self.out_channels, self.in_channels // self.groups, self.kernel, self.kernel),
            "y": (self.batch, self.out_channels, self.out_size, self.out_size),
        }

    @property
    def flops(self) -> int:
        """Of each of the three directions, padding included, as is usual."""
        reduced = self.in_channels // self.groups * self.kernel**2
        return 2 * self.batch * self.out_channels * self.out_size**2 * reduced

    def __str__(self) -> str:
        options = {"s": (self.stride, 1), "p": (self.padding, 0), "g": (self.groups, 1)}
        rest = [f"{name}{value}" for name, (value, usual) in options.items() if value != usual]
        return " ".join([f"{self.in_channels}>{self.out_channels} {self.size} k{self.kernel}", *rest])


@dataclass(frozen=True)
class Gemm:
    """A matrix product, or `batch` of them; a transposed operand is stored the other way round."""

    m: int
    n: int
    k: int
    transpose_a: bool = False
    transpose_b: bool = False
    batch: int = 1
    count: int = 1

    ops: ClassVar = ("gemm",)

    def _shape(self, rows: int, columns: int, transposed: bool) -> tuple[int, ...]:
        matrix = (columns, rows) if transposed else (rows, columns)
        return matrix if self.batch == 1 else (self.batch, *matrix)

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        return {
            "a": self._shape(self.m, self.k, self.transpose_a),
            "b": self._shape(self.k, self.n, self.transpose_b),
            "c": self._shape(self.m, self.n, False),
        }

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    def __str__(self) -> str:
        letters = "".join("NT"[transposed] for transposed in (self.transpose_a, self.transpose_b))
        return f"{self.m}x{self.n}x{self.k} {letters}" + (f" x{self.batch}" if self.batch > 1 else "")


Case: TypeAlias = Conv | Gemm


@dataclass(frozen=True)
class Suite:
    about: str
    cases: Sequence[Case]
    batch: int | None = 8  # of convolutions
    ops: tuple[str, ...] = tuple(RESULT)  # of those that the cases have


RESNET50 = [
    Conv(3, 64, 224, 7, 2, 3),
    Conv(64, 256, 56, 1, count=4),
    Conv(64, 64, 56, 1),
    Conv(64, 64, 56, 3, 1, 1, count=3),
    Conv(256, 64, 56, 1, count=2),
    Conv(256, 512, 56, 1, 2),
    Conv(256, 128, 56, 1),
    Conv(128, 128, 56, 3, 2, 1),
    Conv(128, 512, 28, 1, count=4),
    Conv(512, 128, 28, 1, count=3),
    Conv(128, 128, 28, 3, 1, 1, count=3),
    Conv(512, 1024, 28, 1, 2),
    Conv(512, 256, 28, 1),
    Conv(256, 256, 28, 3, 2, 1),
    Conv(256, 1024, 14, 1, count=6),
    Conv(1024, 256, 14, 1, count=5),
    Conv(256, 256, 14, 3, 1, 1, count=5),
    Conv(1024, 2048, 14, 1, 2),
    Conv(1024, 512, 14, 1),
    Conv(512, 512, 14, 3, 2, 1),
    Conv(512, 2048, 7, 1, count=3),
    Conv(2048, 512, 7, 1, count=2),
    Conv(512, 512, 7, 3, 1, 1, count=2),
]

MOBILENET = [
    Conv(3, 32, 224, 3, 2, 1),
    Conv(32, 32, 112, 3, 1, 1, 32),
    Conv(32, 64, 112, 1),
    Conv(64, 64, 112, 3, 2, 1, 64),
    Conv(64, 128, 56, 1),
    Conv(128, 128, 56, 3, 1, 1, 128),
    Conv(128, 128, 56, 1),
    Conv(128, 128, 56, 3, 2, 1, 128),
    Conv(128, 256, 28, 1),
    Conv(256, 256, 28, 3, 1, 1, 256),
    Conv(256, 256, 28, 1),
    Conv(256, 256, 28, 3, 2, 1, 256),
    Conv(256, 512, 14, 1),
    Conv(512, 512, 14, 3, 1, 1, 512, count=5),
    Conv(512, 512, 14, 1, count=5),
    Conv(512, 512, 14, 3, 2, 1, 512),
    Conv(512, 1024, 7, 1),
    Conv(1024, 1024, 7, 3, 1, 1, 1024),
    Conv(1024, 1024, 7, 1),
]

VGG16 = [
    Conv(3, 64, 224, 3, 1, 1),
    Conv(64, 64, 224, 3, 1, 1),
    Conv(64, 128, 112, 3, 1, 1),
    Conv(128, 128, 112, 3, 1, 1),
    Conv(128, 256, 56, 3, 1, 1),
    Conv(256, 256, 56, 3, 1, 1, count=2),
    Conv(256, 512, 28, 3, 1, 1),
    Conv(512, 512, 28, 3, 1, 1, count=2),
    Conv(512, 512, 14, 3, 1, 1, count=3),
]

FIRST_LAYERS = [
    Conv(3, 64, 224, 7, 2, 3),  # ResNet
    Conv(3, 64, 224, 3, 1, 1),  # VGG
    Conv(3, 32, 224, 3, 2, 1),  # MobileNet
    Conv(3, 32, 299, 3, 2),  # Inception
    Conv(3, 64, 224, 11, 4, 2),  # AlexNet
    Conv(3, 96, 224, 4, 4),  # ConvNeXt
    Conv(3, 768, 224, 16, 16),  # a vision transformer's patches
    Conv(4, 320, 64, 3, 1, 1),  # a diffusion model's latents
    Conv(1, 32, 28, 3, 1, 1),  # digits
]

# In rising order: what a peer takes for a small product tells whether a large one can be waited for.
GEMMS = [
    Gemm(256, 256, 256),
    Gemm(512, 512, 512),
    Gemm(1024, 1024, 1024),
    Gemm(1024, 1024, 1024, transpose_b=True),
    Gemm(1024, 1024, 1024, transpose_a=True),
    Gemm(1024, 1024, 1024, transpose_a=True, transpose_b=True),
    Gemm(2048, 2048, 2048),
    Gemm(4096, 4096, 4096),
    # a transformer of width 768 on 512 tokens: projections, the two halves of the block behind, attention of 12 heads
    Gemm(512, 768, 768, transpose_b=True),
    Gemm(512, 3072, 768, transpose_b=True),
    Gemm(512, 768, 3072, transpose_b=True),
    Gemm(512, 512, 64, transpose_b=True, batch=12),
    Gemm(512, 64, 512, batch=12),
    # skinny: one token, a few tokens, few columns, a small inner size
    Gemm(1, 4096, 4096, transpose_b=True),
    Gemm(4096, 1, 4096),
    Gemm(16, 4096, 4096, transpose_b=True),
    Gemm(4096, 16, 4096),
    Gemm(4096, 4096, 16),
]

# Where a library may fall off a cliff, in stacks, so that a call's own cost doesn't hide it.
SMALL_GEMMS = [Gemm(m, n, k, batch=100) for m, n, k in product((1, 8, 17, 100), repeat=3)]

SUITES = {
    "resnet50": Suite("the 23 convolutions of ResNet-50 v1.5", RESNET50),
    "mobilenet": Suite("the 19 convolutions of MobileNet v1, 9 of them depthwise", MOBILENET),
    "vgg": Suite("the 9 convolutions of VGG-16", VGG16, 2),
    "first-layer": Suite("first layers of well-known networks", FIRST_LAYERS),
    "batch1": Suite("ResNet-50 on one image", RESNET50, 1, ("forward",)),
    "gemm": Suite("matrix products: squares, a transformer's, skinny ones", GEMMS, None),
    "small": Suite("stacks of small matrix products of every shape", SMALL_GEMMS, None),
    "overhead": Suite("what the smallest call costs, by the way of calling", [Gemm(1, 1, 1), Conv(1, 1, 1, 1)], 1),
}
