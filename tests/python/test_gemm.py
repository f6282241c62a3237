"""GEMM through NumPy, against float64, on every ISA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import BACKEND

import tcpy
from tcpy import _reference as reference
from tcpy import ops
from tcpy._selftest import check_gemm, halves

H = np.float16

SIZES = [1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 129]


@pytest.mark.parametrize("k", [1, 2, 17, 63, 256, 257, 513])
def test_sizes_against_float64(context: tcpy.Context, k: int) -> None:
    rng = np.random.default_rng(k)
    for m in SIZES:
        n = int(rng.choice(SIZES))
        for result in check_gemm(context, rng, m, n, k):
            assert result.passed, (result, m, n, k)


def assert_product(got: Any, a: Any, b: Any) -> None:
    a64, b64 = np.asarray(a, float), np.asarray(b, float)
    assert reference.excess(a64 @ b64, abs(a64) @ abs(b64), got) <= 1, (a.shape, b.shape, a.strides, b.strides)


# ---- Views -----------------------------------------------------------------------------------------------------------

VIEWS: dict[str, tuple[bool, Callable[[Any], Any]]] = {
    "itself": (True, lambda x: x),
    "fortran": (True, np.asfortranarray),
    "columns of a wider array": (True, lambda x: np.concatenate([x, x * np.nan], axis=1)[:, : x.shape[1]]),
    "rows of a taller array": (True, lambda x: np.concatenate([x * np.nan, x])[len(x) :]),
    "every second row": (True, lambda x: np.repeat(x, 2, axis=0)[::2]),
    "columns of a wider fortran array": (True, lambda x: np.asfortranarray(np.concatenate([x, x * np.nan]))[: len(x)]),
    "every second column": (False, lambda x: np.repeat(x, 2, axis=1)[:, ::2]),
    "rows backwards": (False, lambda x: x[::-1].copy()[::-1]),
    "columns backwards": (False, lambda x: x[:, ::-1].copy()[:, ::-1]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(context: tcpy.Context, name: str) -> None:
    passed_through, view_of = VIEWS[name]
    rng = np.random.default_rng(6)
    a, b = halves(rng, 9, 23), halves(rng, 23, 14)
    va, vb = view_of(a), view_of(b)
    for view in (va, vb):
        matrix = ops._matrix(context, "a", view)
        assert np.shares_memory(matrix.array, view) == passed_through
        steps = sum((n - 1) * step for n, step in zip(matrix.array.shape, matrix.array.strides, strict=True))
        assert matrix.nbytes == steps + 2  # to the last byte touched, and no further
    exact = tcpy.gemm(a, b, context=context)
    np.testing.assert_array_equal(tcpy.gemm(va, vb, context=context), exact)
    np.testing.assert_array_equal(tcpy.gemm(va.T, vb.T, transpose_a=True, transpose_b=True, context=context), exact)
    assert_product(tcpy.gemm(vb.T, va.T, context=context), b.T, a.T)


def test_rows_that_are_no_whole_elements_apart(context: tcpy.Context) -> None:
    records = np.zeros(5, [("row", "<f2", 3), ("odd", "u1")])
    records["row"] = np.arange(15).reshape(5, 3)
    a, b = records["row"], np.ones((3, 2), H)
    np.testing.assert_array_equal(tcpy.gemm(a, b, context=context), a.astype(float) @ b)


def test_broadcast_views(context: tcpy.Context) -> None:
    row = halves(np.random.default_rng(7), 1, 6)
    a, b = np.broadcast_to(row, (4, 6)), np.broadcast_to(row.T, (6, 5))
    assert_product(tcpy.gemm(a, b, context=context), a, b)


# ---- Stacks ----------------------------------------------------------------------------------------------------------

STACKS = [
    ((4, 5, 7), (4, 7, 6)),
    ((5, 7), (4, 7, 6)),
    ((4, 5, 7), (7, 6)),
    ((1, 5, 7), (4, 7, 6)),
    ((4, 5, 7), (1, 7, 6)),
    ((1, 5, 7), (7, 6)),
    ((0, 5, 7), (0, 7, 6)),
    ((0, 5, 7), (1, 7, 6)),
    ((3, 0, 7), (3, 7, 6)),
    ((3, 5, 7), (3, 7, 0)),
    ((3, 5, 0), (3, 0, 6)),
]


@pytest.mark.parametrize("shapes", STACKS, ids=str)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_stacks(context: tcpy.Context, shapes: Any, dtype: Any) -> None:
    rng = np.random.default_rng(8)
    a, b = halves(rng, *shapes[0]), halves(rng, *shapes[1])
    got = tcpy.gemm(a, b, dtype=dtype, context=context)
    assert (got.dtype, got.shape) == (dtype, np.matmul(a.astype(float), b.astype(float)).shape)
    assert_product(got, a, b)


def test_views_of_stacks(context: tcpy.Context) -> None:
    rng = np.random.default_rng(9)
    a, b = halves(rng, 4, 5, 7), halves(rng, 4, 7, 6)
    exact = tcpy.gemm(a, b, context=context)
    views = [
        lambda x: x.swapaxes(1, 2).copy().swapaxes(1, 2),
        lambda x: np.repeat(x, 3, axis=0)[::3],
        lambda x: x[::-1].copy()[::-1],
        lambda x: np.moveaxis(np.moveaxis(x, 0, 1).copy(), 1, 0),
        lambda x: np.moveaxis(np.moveaxis(x, 0, 2).copy(), 2, 0),
        np.asfortranarray,
    ]
    for view in views:
        np.testing.assert_array_equal(tcpy.gemm(view(a), view(b), context=context), exact)
    same = np.broadcast_to(a[:1], a.shape)
    assert ops._matrix(context, "a", same).stride == 0
    np.testing.assert_array_equal(tcpy.gemm(same, b, context=context), tcpy.gemm(a[0], b, context=context))


# ---- alpha, beta, c and out ------------------------------------------------------------------------------------------


def operands(dtype: Any = H) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(10)
    return halves(rng, 6, 11), halves(rng, 11, 9), halves(rng, 6, 9).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("layout", [np.array, np.asfortranarray])
def test_c_stays_as_it_is(context: tcpy.Context, dtype: Any, layout: Any) -> None:
    a, b, c = operands(dtype)
    c = layout(c)
    kept, out = c.copy(), np.full(c.shape, np.nan, dtype)
    got = tcpy.gemm(a, b, alpha=2, beta=-0.5, c=c, context=context)
    a64, b64, c64 = a.astype(float), b.astype(float), c.astype(float)
    magnitude = 2 * (abs(a64) @ abs(b64)) + 0.5 * abs(c64)
    assert got.dtype == dtype
    assert reference.excess(2 * a64 @ b64 - 0.5 * c64, magnitude, got) <= 1
    assert tcpy.gemm(a, b, alpha=2, beta=-0.5, c=c, out=out, context=context) is out
    np.testing.assert_array_equal(out, got)
    np.testing.assert_array_equal(c, kept)


def test_in_place(context: tcpy.Context) -> None:
    a, b, c = operands()
    wanted = tcpy.gemm(a, b, beta=1, c=c, context=context)
    assert tcpy.gemm(a, b, beta=1, c=c, out=c, context=context) is c
    np.testing.assert_array_equal(c, wanted)


def test_what_is_not_read(context: tcpy.Context) -> None:
    a, b, c = operands()
    nan = np.full_like(c, np.nan)
    product = tcpy.gemm(a, b, context=context)
    np.testing.assert_array_equal(tcpy.gemm(a, b, c=nan, context=context), product)
    np.testing.assert_array_equal(tcpy.gemm(a, b, out=nan, context=context), product)
    np.testing.assert_array_equal(tcpy.gemm(a * np.nan, b, alpha=0, beta=1, c=c, context=context), c)
    np.testing.assert_array_equal(tcpy.gemm(a[:, :0], b[:0], beta=2, c=c, context=context), 2 * c)
    zeros = tcpy.gemm(a[:, :0], b[:0], out=np.full(c.shape, -1, H), context=context)
    assert not zeros.any()
    assert not np.signbit(zeros).any()


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_a_special_value_reaches_its_own_outputs_only(context: tcpy.Context, special: float) -> None:
    rng = np.random.default_rng(11)
    a, b = halves(rng, 19, 33), halves(rng, 33, 21)
    a[4, 32] = b[20, 7] = special
    got = np.isfinite(tcpy.gemm(a, b, context=context))
    wanted = np.ones((19, 21), bool)
    wanted[4] = wanted[:, 7] = False
    np.testing.assert_array_equal(got, wanted)


def test_sums_are_taken_in_float32(context: tcpy.Context) -> None:
    def constant(k: int, a: float, b: float, dtype: Any = np.float16) -> float:
        operand = np.full((1, k), a, H), np.full((k, 1), b, H)
        return float(tcpy.gemm(*operand, dtype=dtype, context=context).item())

    assert constant(1000, 8, 8) == 64000
    assert constant(4096, 8, 8) == np.inf
    assert constant(4096, 8, 8, np.float32) == 262144
    assert constant(100000, 1, 1, np.float32) == 100000
    assert constant(1, 65504, -65504) == -np.inf
    assert constant(1, 2**-24, 1) == 2**-24


def test_same_bits_whatever_the_threads_and_the_isa(context: tcpy.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(12)
    a, b = halves(rng, 150, 700), halves(rng, 700, 133)
    # Kernels on bf16 tiles have bits of their own, the same for all of them; so has a GPU.
    monkeypatch.setenv("TC_CPU_ISA", "amxemu" if "bf16x2" in context.info()["kernel"] else "generic")
    with tcpy.Context(BACKEND) as other:
        expected = tcpy.gemm(a, b, context=other).tobytes()
    for threads in (1, 2, 5):
        context.threads = threads
        assert tcpy.gemm(a, b, context=context).tobytes() == expected


def test_repeats_are_bit_equal(context: tcpy.Context) -> None:
    rng = np.random.default_rng(13)
    a, b = halves(rng, 1, 127), halves(rng, 127, 1749)
    assert len({tcpy.gemm(a, b, context=context).tobytes() for _ in range(100)}) == 1
