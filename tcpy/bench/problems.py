"""One case and operation: random operands, this library's call, and sampled results in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .. import _reference as reference
from .. import ops
from ..context import Context
from .suites import RESULT, Case, Conv, Gemm

Array: TypeAlias = NDArray[Any]
Call: TypeAlias = Callable[[], Any]
Operands: TypeAlias = dict[str, Array]
Index: TypeAlias = tuple[int, ...]

SAMPLES = 200


def operands(case: Case, rng: np.random.Generator) -> Operands:
    """Random float16 tensors, standard normal."""
    return {name: rng.standard_normal(shape, np.float32).astype(np.float16) for name, shape in case.tensors.items()}


def moved_bytes(case: Case) -> int:
    """What a call has to read and write at least: each tensor once."""
    return sum(2 * math.prod(shape) for shape in case.tensors.values())


def our_call(context: Context, case: Case, op: str, data: Operands, **more: Any) -> Call:
    """Our call, ready to be timed; it returns a new array, as a framework's does."""
    if isinstance(case, Gemm):
        ta, tb = case.transpose_a, case.transpose_b
        return lambda: ops.gemm(data["a"], data["b"], transpose_a=ta, transpose_b=tb, context=context, **more)
    x, weight, dy = data["x"], data["weight"], data["y"]
    how = {"stride": case.stride, "padding": case.padding, "groups": case.groups, "context": context, **more}
    calls: dict[str, Call] = {
        "forward": lambda: ops.conv2d_forward(x, weight, **how),
        "dx": lambda: ops.conv2d_backward_input(dy, weight, input_size=case.size, **how),
        "dw": lambda: ops.conv2d_backward_weight(x, dy, kernel_size=case.kernel, **how),
    }
    return calls[op]


# ---- Sampled results: for one output, the two vectors whose scalar product it is -----------------------------------


def _meeting(case: Conv, pixel: Any, output: Any, tap: Any) -> tuple[Array, Array, Array]:
    """Along one axis: those that meet, inside the image (what is outside is 0, and adds nothing to finite data)."""
    pixel, output, tap = np.broadcast_arrays(pixel, output, tap)
    inside = (pixel >= 0) & (pixel < case.size) & (output >= 0) & (output < case.out_size)
    meets = inside & (pixel == output * case.stride - case.padding + tap)
    return pixel[meets], output[meets], tap[meets]


def _of_group(channel: int, channels: int, others: int, groups: int) -> tuple[Array, int]:
    """The other side's channels that one of `channels` is connected with, and its own place in its group."""
    group, place = divmod(channel, channels // groups)
    width = others // groups
    return np.arange(group * width, (group + 1) * width), place


def _forward_terms(case: Conv, data: Operands, index: Index) -> tuple[Array, Array]:
    n, o, y, x = index
    taps = np.arange(case.kernel)
    rows, _, kernel_rows = _meeting(case, y * case.stride - case.padding + taps, y, taps)
    columns, _, kernel_columns = _meeting(case, x * case.stride - case.padding + taps, x, taps)
    inputs, _ = _of_group(o, case.out_channels, case.in_channels, case.groups)
    pixels = data["x"][n][np.ix_(inputs, rows, columns)]
    return pixels, data["weight"][o][:, kernel_rows[:, None], kernel_columns]


def _dx_terms(case: Conv, data: Operands, index: Index) -> tuple[Array, Array]:
    n, i, y, x = index
    taps = np.arange(case.kernel)
    _, rows, kernel_rows = _meeting(case, y, (y + case.padding - taps) // case.stride, taps)
    _, columns, kernel_columns = _meeting(case, x, (x + case.padding - taps) // case.stride, taps)
    outputs, place = _of_group(i, case.in_channels, case.out_channels, case.groups)
    weights = data["weight"][:, place][np.ix_(outputs, kernel_rows, kernel_columns)]
    return data["y"][n][np.ix_(outputs, rows, columns)], weights


def _dw_terms(case: Conv, data: Operands, index: Index) -> tuple[Array, Array]:
    o, place, ky, kx = index
    outputs = np.arange(case.out_size)
    rows, out_rows, _ = _meeting(case, outputs * case.stride - case.padding + ky, outputs, ky)
    columns, out_columns, _ = _meeting(case, outputs * case.stride - case.padding + kx, outputs, kx)
    inputs, _ = _of_group(o, case.out_channels, case.in_channels, case.groups)
    pixels = data["x"][:, inputs[place]][:, rows[:, None], columns]
    return pixels, data["y"][:, o][:, out_rows[:, None], out_columns]


def _gemm_terms(case: Gemm, data: Operands, index: Index) -> tuple[Array, Array]:
    *stack, row, column = index
    a, b = data["a"][tuple(stack)], data["b"][tuple(stack)]
    return (a.T if case.transpose_a else a)[row], (b.T if case.transpose_b else b)[:, column]


_TERMS: dict[str, Callable[[Any, Operands, Index], tuple[Array, Array]]] = {
    "forward": _forward_terms,
    "dx": _dx_terms,
    "dw": _dw_terms,
    "gemm": _gemm_terms,
}


@dataclass(frozen=True)
class Sampled:
    """Exact results at random places, and the sums of the products' magnitudes there."""

    index: tuple[Array, ...]
    exact: NDArray[np.float64]
    magnitude: NDArray[np.float64]

    def excess(self, result: Array) -> float:
        """The largest error as a multiple of what this library may have: right if it is at most 1."""
        return reference.excess(self.exact, self.magnitude, result[self.index])

    def coarse(self, result: Array) -> bool:
        """Whether a peer computes the same thing; bfloat16 operands alone are off by 2^-8 of the magnitude."""
        error = np.abs(result[self.index].astype(np.float64) - self.exact)
        return bool((error <= 2.0**-6 * self.magnitude).all())


def sample(case: Case, op: str, data: Operands, rng: np.random.Generator) -> Sampled:
    """Results at up to `SAMPLES` random places, in float64."""
    index = tuple(rng.integers(0, size, SAMPLES) for size in case.tensors[RESULT[op]])
    terms = (_TERMS[op](case, data, place) for place in zip(*(axis.tolist() for axis in index), strict=True))
    products = [left.astype(np.float64) * right.astype(np.float64) for left, right in terms]
    exact, magnitude = (np.array([part.sum() for part in parts]) for parts in (products, map(np.abs, products)))
    return Sampled(index, exact, magnitude)
