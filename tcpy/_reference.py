"""What the operations should give, in plain float64 NumPy, and how far off a result may be."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

F64: TypeAlias = NDArray[np.float64]
Pair: TypeAlias = tuple[int, int]

# Of the sum of the products' magnitudes: what float32 accumulation may lose on top of the final rounding.
ACCUMULATION = 2.0**-15


def _windows(x: F64, kernel: Pair, stride: Pair, output: Pair) -> Any:
    """For each kernel position, the pixels of the padded input that it meets: views, so that they can be added to."""
    for ky in range(kernel[0]):
        for kx in range(kernel[1]):
            rows = slice(ky, ky + stride[0] * (output[0] - 1) + 1, stride[0])
            columns = slice(kx, kx + stride[1] * (output[1] - 1) + 1, stride[1])
            yield ky, kx, x[..., rows, columns]


def _grouped(tensor: F64, axis: int, groups: int) -> F64:
    """Split the channel axis into (groups, channels of one group)."""
    shape = tensor.shape
    return tensor.reshape(*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])


def _padded(x: F64, padding: Pair) -> F64:
    return np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))


def conv2d_forward(x: F64, weight: F64, stride: Pair, padding: Pair, groups: int) -> F64:
    xg, wg = _grouped(_padded(x, padding), 1, groups), _grouped(weight, 0, groups)
    kernel = weight.shape[2:]
    output = [(size - k) // s + 1 for size, k, s in zip(xg.shape[3:], kernel, stride, strict=True)]
    y = np.zeros((len(x), groups, wg.shape[1], *output))
    for ky, kx, pixels in _windows(xg, kernel, stride, (output[0], output[1])):
        y += np.einsum("ngihw,goi->ngohw", pixels, wg[..., ky, kx])
    return y.reshape(len(x), len(weight), *output)


def conv2d_backward_input(dy: F64, weight: F64, input_size: Pair, stride: Pair, padding: Pair, groups: int) -> F64:
    dyg, wg = _grouped(dy, 1, groups), _grouped(weight, 0, groups)
    (h, w), (ph, pw) = input_size, padding
    dx = np.zeros((len(dy), groups, wg.shape[2], h + 2 * ph, w + 2 * pw))
    for ky, kx, pixels in _windows(dx, weight.shape[2:], stride, dy.shape[2:]):
        pixels += np.einsum("ngohw,goi->ngihw", dyg, wg[..., ky, kx])
    return dx[..., ph : ph + h, pw : pw + w].reshape(len(dy), groups * wg.shape[2], h, w)


def conv2d_backward_weight(x: F64, dy: F64, kernel_size: Pair, stride: Pair, padding: Pair, groups: int) -> F64:
    xg, dyg = _grouped(_padded(x, padding), 1, groups), _grouped(dy, 1, groups)
    dw = np.zeros((groups, dyg.shape[2], xg.shape[2], *kernel_size))
    for ky, kx, pixels in _windows(xg, kernel_size, stride, dy.shape[2:]):
        dw[..., ky, kx] = np.einsum("ngohw,ngihw->goi", dyg, pixels)
    return dw.reshape(-1, *dw.shape[2:])


def _half_ulp(values: F64, dtype: np.dtype[Any]) -> F64:
    largest = float(np.finfo(dtype).max)
    spacing: F64 = np.spacing(np.minimum(np.abs(values), largest).astype(dtype)).astype(np.float64)
    return spacing / 2


def allowed(exact: F64, magnitude: F64, got: NDArray[Any]) -> F64:
    """The largest error of each element; `magnitude` is the sum of the magnitudes of all its products and addends."""
    ulp = np.maximum(_half_ulp(exact, got.dtype), _half_ulp(got.astype(np.float64), got.dtype))
    return ulp + ACCUMULATION * magnitude


def excess(exact: F64, magnitude: F64, got: NDArray[Any]) -> float:
    """The largest error as a multiple of what is allowed: right if it is at most 1. For finite `exact`."""
    if not exact.size:
        return 0.0
    value = got.astype(np.float64)
    if got.dtype == np.float16:  # from 65520 on, infinity is the right rounding, and as good as 65504 close below it
        limit = float(np.finfo(np.float16).max) + 16
        overflow = np.isinf(value) & (np.abs(exact) + ACCUMULATION * magnitude >= limit) & (value * exact > 0)
        value = np.where(overflow, exact, value)
    error = np.abs(value - exact) / allowed(exact, magnitude, got)
    return float(np.where(np.isnan(error), np.inf, error).max())
