"""`python -m tcpy selftest`: every operation against float64 on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _reference as reference
from . import ops
from .context import Context

_HEADER = f"{'operation':<26} {'shape':<36} {'largest error':>13} {'of allowed':>10}"


class Result(NamedTuple):
    """The largest error of one call, and that as a multiple of what is allowed."""

    operation: str
    shape: str
    error: float
    excess: float

    @property
    def passed(self) -> bool:
        return self.excess <= 1

    def __str__(self) -> str:
        return f"{self.operation:<26} {self.shape:<36} {self.error:>13.2e} {self.excess:>10.3f}"


class Conv(NamedTuple):
    batch: int
    in_channels: int
    out_channels: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    groups: int = 1

    def __str__(self) -> str:
        def pair(values: tuple[int, int]) -> str:
            return f"{values[0]}x{values[1]}"

        shape = f"{self.batch}x{self.in_channels}x{pair(self.size)}->{self.out_channels} k{pair(self.kernel)}"
        return f"{shape} s{pair(self.stride)} p{pair(self.padding)} g{self.groups}"


CONVS = [
    Conv(1, 3, 16, (32, 32), (7, 7), (2, 2), (3, 3)),
    Conv(2, 16, 24, (13, 11), (3, 3), (1, 1), (1, 1)),
    Conv(2, 17, 5, (9, 10), (1, 1), (2, 1)),
    Conv(2, 12, 18, (10, 9), (3, 2), (1, 2), (1, 0), groups=3),
    Conv(2, 16, 16, (12, 12), (3, 3), (1, 1), (1, 1), groups=16),
]
GEMMS = [(64, 64, 64), (67, 45, 301), (1, 129, 1000), (130, 1, 33)]


def halves(rng: np.random.Generator, *shape: int) -> NDArray[np.float16]:
    return rng.standard_normal(shape).astype(np.float16)


def _result(operation: str, shape: str, exact: Any, magnitude: Any, got: NDArray[Any]) -> Result:
    error = float(np.abs(got - exact).max())
    return Result(operation, shape, error, reference.excess(exact, magnitude, got))


def check_gemm(context: Context, rng: np.random.Generator, m: int, n: int, k: int) -> Iterator[Result]:
    a, b, c = halves(rng, m, k), halves(rng, k, n), halves(rng, m, n)
    a64, b64, c64 = (matrix.astype(np.float64) for matrix in (a, b, c))
    product, magnitude, shape = a64 @ b64, abs(a64) @ abs(b64), f"{m}x{k} * {k}x{n}"
    yield _result("gemm", shape, product, magnitude, ops.gemm(a, b, context=context))
    turned = ops.gemm(a.T.copy(), b.T.copy(), transpose_a=True, transpose_b=True, dtype=np.float32, context=context)
    yield _result("gemm transposed, f32", shape, product, magnitude, turned)
    scaled = ops.gemm(a, b, alpha=0.5, beta=-2, c=c, context=context)
    yield _result("gemm alpha, beta", shape, 0.5 * product - 2 * c64, 0.5 * magnitude + 2 * abs(c64), scaled)


def check_gemm_batched(context: Context, rng: np.random.Generator) -> Iterator[Result]:
    a, b = halves(rng, 5, 19, 70), halves(rng, 70, 33)
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    got = ops.gemm(a, b, context=context)
    yield _result("gemm_batched", "5x19x70 * 70x33", a64 @ b64, abs(a64) @ abs(b64), got)


def check_conv(context: Context, rng: np.random.Generator, case: Conv) -> Iterator[Result]:
    _, ic, oc, size, kernel, stride, padding, groups = case
    x, weight = halves(rng, case.batch, ic, *size), halves(rng, oc, ic // groups, *kernel)
    bias = halves(rng, oc)
    how: dict[str, Any] = {"stride": stride, "padding": padding, "groups": groups}
    x64, w64, b64 = x.astype(np.float64), weight.astype(np.float64), bias.astype(np.float64)[:, None, None]

    y = ops.conv2d_forward(x, weight, bias, **how, context=context)
    exact = reference.conv2d_forward(x64, w64, **how) + b64
    magnitude = reference.conv2d_forward(abs(x64), abs(w64), **how) + abs(b64)
    yield _result("conv2d_forward", str(case), exact, magnitude, y)

    dy = halves(rng, *y.shape)
    dy64 = dy.astype(np.float64)
    dx = ops.conv2d_backward_input(dy, weight, input_size=size, **how, context=context)
    exact = reference.conv2d_backward_input(dy64, w64, size, **how)
    magnitude = reference.conv2d_backward_input(abs(dy64), abs(w64), size, **how)
    yield _result("conv2d_backward_input", str(case), exact, magnitude, dx)

    exact = reference.conv2d_backward_weight(x64, dy64, kernel, **how)
    magnitude = reference.conv2d_backward_weight(abs(x64), abs(dy64), kernel, **how)
    for dtype in (np.float16, np.float32):
        dw = ops.conv2d_backward_weight(x, dy, kernel_size=kernel, dtype=dtype, **how, context=context)
        yield _result(f"conv2d_backward_weight f{8 * dw.itemsize}", str(case), exact, magnitude, dw)


def check_all(context: Context) -> Iterator[Result]:
    rng = np.random.default_rng(1)
    for m, n, k in GEMMS:
        yield from check_gemm(context, rng, m, n, k)
    yield from check_gemm_batched(context, rng)
    for case in CONVS:
        yield from check_conv(context, rng, case)


@contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def contexts() -> Iterator[Context]:
    """A context for each ISA that this machine has, or the one that the environment asks for."""
    with Context() as best:
        info = best.info()
        if not info["isas"] or os.environ.get("TC_CPU_ISA"):
            yield best
            return
    for isa in info["isas"]:
        with environment("TC_CPU_ISA", isa), Context(info["backend"]) as context:
            yield context


def selftest() -> bool:
    """Print a table of errors; whether all are within bounds."""
    results: list[Result] = []
    for context in contexts():
        info = context.info()
        name = f"{info['backend']} {info['isa']}".rstrip()
        print(f"{name}: {info['kernel']}, {info['threads']} threads\n{_HEADER}")
        for result in check_all(context):
            print(result if result.passed else f"{result}  WRONG")
            results.append(result)
        print()
    wrong = sum(not result.passed for result in results)
    print(f"{len(results) - wrong} within bounds, {wrong} wrong")
    return wrong == 0
