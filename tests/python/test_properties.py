"""What must hold for any shapes: against float64, and between the three directions of a convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import tcpy
from tcpy import _reference as reference
from tcpy._selftest import halves

small = st.integers(1, 9)
sizes = st.tuples(st.integers(1, 12), st.integers(1, 12))


@st.composite
def convolutions(draw: st.DrawFn) -> dict[str, Any]:
    """Shapes and steps of a convolution that has an output."""
    kernel, stride, padding = draw(sizes), draw(sizes), draw(st.tuples(st.integers(0, 6), st.integers(0, 6)))
    size = tuple(draw(st.integers(max(1, k - 2 * p), 16)) for k, p in zip(kernel, padding, strict=True))
    groups = draw(st.integers(1, 4))
    per_group = draw(st.tuples(small, small))
    return {
        "x": (draw(st.integers(0, 3)), groups * per_group[0], *size),
        "weight": (groups * per_group[1], per_group[0], *kernel),
        "how": {"stride": stride, "padding": padding, "groups": groups},
        "seed": draw(st.integers(0, 2**32 - 1)),
    }


def bounded_inner(a: Any, a_allowed: Any, b: Any) -> tuple[float, float]:
    """An inner product in float64, and how far off it may be because of a's errors."""
    b64 = b.astype(float)
    return float((a.astype(float) * b64).sum()), float((a_allowed * abs(b64)).sum())


@settings(max_examples=150, deadline=None)
@given(convolutions())
def test_the_directions_of_a_convolution_are_adjoint(case: dict[str, Any]) -> None:
    rng = np.random.default_rng(case["seed"])
    x, w, how = halves(rng, *case["x"]), halves(rng, *case["weight"]), case["how"]
    y = tcpy.conv2d_forward(x, w, **how)
    dy = halves(rng, *y.shape)
    size, kernel = x.shape[2:], w.shape[2:]
    dx = tcpy.conv2d_backward_input(dy, w, input_size=size, **how)
    dw = tcpy.conv2d_backward_weight(x, dy, kernel_size=kernel, **how)

    x64, w64, dy64 = (array.astype(float) for array in (x, w, dy))
    exact = [
        reference.conv2d_forward(x64, w64, **how),
        reference.conv2d_backward_input(dy64, w64, size, **how),
        reference.conv2d_backward_weight(x64, dy64, kernel, **how),
    ]
    magnitudes = [
        reference.conv2d_forward(abs(x64), abs(w64), **how),
        reference.conv2d_backward_input(abs(dy64), abs(w64), size, **how),
        reference.conv2d_backward_weight(abs(x64), abs(dy64), kernel, **how),
    ]
    got = [y, dx, dw]
    allowed = []
    for one, wanted, magnitude in zip(got, exact, magnitudes, strict=True):
        assert reference.excess(wanted, magnitude, one) <= 1
        allowed.append(reference.allowed(wanted, magnitude, one))
    inner = [bounded_inner(*pair) for pair in zip(got, allowed, [dy, x, w], strict=True)]
    (forward, forward_off), *backward = inner
    for product, off in backward:
        assert abs(forward - product) <= forward_off + off + 1e-9


@settings(max_examples=150, deadline=None)
@given(
    st.tuples(*[st.integers(0, 40)] * 3),
    st.tuples(st.booleans(), st.booleans()),
    st.integers(1, 3),
    st.floats(-4, 4, width=16),
    st.floats(-4, 4, width=16),
    st.sampled_from([np.float16, np.float32]),
    st.integers(0, 2**32 - 1),
)
def test_gemm(
    mnk: tuple[int, ...],
    transposes: tuple[bool, ...],
    batch: int,
    alpha: float,
    beta: float,
    dtype: Any,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    m, n, k = mnk
    a, b = halves(rng, batch, m, k), halves(rng, batch, k, n)
    c = halves(rng, batch, m, n).astype(dtype)
    stored = [x.swapaxes(1, 2).copy() if turned else x for x, turned in zip((a, b), transposes, strict=True)]
    turned = {"transpose_a": transposes[0], "transpose_b": transposes[1]}
    got = tcpy.gemm(*stored, **turned, alpha=alpha, beta=beta, c=c)
    a64, b64, c64 = a.astype(float), b.astype(float), c.astype(float)
    magnitude = abs(alpha) * (abs(a64) @ abs(b64)) + abs(beta * c64)
    assert reference.excess(alpha * (a64 @ b64) + beta * c64, magnitude, got) <= 1
    for i in range(batch):
        alone = tcpy.gemm(stored[0][i], stored[1][i], **turned, alpha=alpha, beta=beta, c=c[i])
        np.testing.assert_array_equal(alone, got[i])
