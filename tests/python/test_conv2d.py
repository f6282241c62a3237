"""Convolutions through NumPy, against float64, on every ISA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcpy
from tcpy import _reference as reference
from tcpy import ops
from tcpy._selftest import Conv, check_conv, halves

H = np.float16

CASES = [
    Conv(1, 1, 1, (1, 1), (1, 1)),
    Conv(3, 2, 5, (7, 9), (3, 3)),
    Conv(2, 3, 4, (8, 8), (3, 3), (1, 1), (1, 1)),
    Conv(1, 3, 8, (23, 17), (7, 7), (2, 2), (3, 3)),
    Conv(2, 17, 33, (5, 6), (1, 1)),
    Conv(1, 4, 6, (9, 7), (1, 3), (1, 2), (0, 1)),
    Conv(1, 4, 6, (9, 7), (3, 1), (2, 1), (1, 0)),
    Conv(1, 2, 3, (4, 5), (5, 4), (1, 1), (2, 3)),  # kernel larger than the input
    Conv(1, 2, 3, (3, 3), (2, 2), (1, 1), (5, 4)),  # padding larger than the kernel
    Conv(2, 3, 5, (13, 11), (2, 2), (3, 5)),  # stride larger than the kernel
    Conv(1, 32, 48, (67, 4), (1, 1), (3, 1), (0, 1)),
    Conv(1, 6, 4, (11, 4), (3, 3), (1, 3), (1, 0)),  # one column of output
    Conv(2, 1, 1, (1, 1), (31, 1), (2, 2), (16, 15)),
    Conv(2, 3, 19, (16, 16), (4, 4), (4, 4)),
    Conv(2, 64, 17, (6, 8), (3, 3), (1, 2), (1, 1)),
    Conv(2, 8, 16, (20, 1), (9, 1), groups=8),
    Conv(2, 4, 4, (9, 9), (7, 7), (2, 2), (1, 1), groups=4),
    Conv(1, 6, 6, (7, 5), (1, 1), (2, 2), (1, 0), groups=2),
    Conv(1, 67 * 2, 67, (13, 12), (2, 1), (2, 13), (1, 14), groups=67),
    Conv(1, 1, 1, (1, 4000), (1, 3)),
    Conv(1, 700, 3, (4, 4), (3, 3), (1, 1), (1, 1)),  # sums in more than one chunk
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_directions_against_float64(context: tcpy.Context, case: Conv) -> None:
    for result in check_conv(context, np.random.default_rng(2), case):
        assert result.passed, result


@pytest.mark.parametrize("case", CASES[::4], ids=str)
def test_integers_are_exact(context: tcpy.Context, case: Conv) -> None:
    rng = np.random.default_rng(3)
    _, ic, oc, size, kernel, stride, padding, groups = case
    how: dict[str, Any] = {"stride": stride, "padding": padding, "groups": groups}
    x = rng.integers(-3, 4, (case.batch, ic, *size)).astype(H)
    w = rng.integers(-2, 3, (oc, ic // groups, *kernel)).astype(H)
    y = tcpy.conv2d_forward(x, w, **how, context=context)
    dy = rng.integers(-2, 3, y.shape).astype(H)
    dx = tcpy.conv2d_backward_input(dy, w, input_size=size, **how, context=context)
    dw = tcpy.conv2d_backward_weight(x, dy, kernel_size=kernel, **how, dtype=np.float32, context=context)
    x64, w64, dy64 = x.astype(float), w.astype(float), dy.astype(float)
    np.testing.assert_array_equal(y, reference.conv2d_forward(x64, w64, **how).astype(H))
    np.testing.assert_array_equal(dx, reference.conv2d_backward_input(dy64, w64, size, **how).astype(H))
    np.testing.assert_array_equal(dw, reference.conv2d_backward_weight(x64, dy64, kernel, **how))


# ---- The arguments ---------------------------------------------------------------------------------------------------


def arrays() -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(4)
    return halves(rng, 2, 3, 9, 8), halves(rng, 5, 3, 3, 3), halves(rng, 5), halves(rng, 2, 5, 9, 8)


def test_bias_is_added_before_the_rounding(context: tcpy.Context) -> None:
    x, w = np.array([2048, 1], H).reshape(1, 2, 1, 1), np.ones((1, 2, 1, 1), H)
    assert tcpy.conv2d_forward(x, w, context=context).item() == 2048  # 2049 is a tie: to even
    assert tcpy.conv2d_forward(x, w, np.array([1], H), context=context).item() == 2050


@pytest.mark.parametrize("given", [2, (2, 2), [2, 2], np.array([2, 2]), np.int8(2), (np.int64(2), np.uint8(2))])
def test_sizes_may_be_any_integers(given: Any) -> None:
    x, w, _, _ = arrays()
    y = tcpy.conv2d_forward(x, w, stride=given, padding=given)
    np.testing.assert_array_equal(y, tcpy.conv2d_forward(x, w, stride=2, padding=2))


def test_results_go_where_out_says(context: tcpy.Context) -> None:
    x, w, b, dy = arrays()
    how: dict[str, Any] = {"padding": 1, "context": context}
    calls = [
        (tcpy.conv2d_forward, (x, w, b), {}, dy.shape, H),
        (tcpy.conv2d_backward_input, (dy, w), {"input_size": (9, 8)}, x.shape, H),
        (tcpy.conv2d_backward_weight, (x, dy), {"kernel_size": 3}, w.shape, H),
        (tcpy.conv2d_backward_weight, (x, dy), {"kernel_size": 3}, w.shape, np.float32),
    ]
    for function, operands, sizes, shape, dtype in calls:
        out = np.full(shape, np.nan, dtype)
        options = {"dtype": dtype} if function is tcpy.conv2d_backward_weight else {}
        assert function(*operands, **sizes, **how, out=out) is out
        np.testing.assert_array_equal(out, function(*operands, **sizes, **options, **how))


def test_scratch_changes_nothing(context: tcpy.Context) -> None:
    x, w, b, dy = arrays()
    col = tcpy.conv2d_scratch_col_bytes(2, 3, 3, (9, 8))
    dx = tcpy.conv2d_scratch_dx_bytes(2, 3, (9, 8))
    assert (col, dx) == (2 * 27 * 72 * 2, 2 * 3 * 72 * 4)
    how: dict[str, Any] = {"padding": 1, "context": context}
    for kind in (lambda n: np.full(n // 4, np.nan, np.float32), lambda n: tcpy.Buffer(n, context)):
        scratch: dict[str, Any] = {"scratch_col": kind(col)}
        np.testing.assert_array_equal(
            tcpy.conv2d_forward(x, w, b, **how, **scratch), tcpy.conv2d_forward(x, w, b, **how)
        )
        np.testing.assert_array_equal(
            tcpy.conv2d_backward_weight(x, dy, kernel_size=3, **how, **scratch),
            tcpy.conv2d_backward_weight(x, dy, kernel_size=3, **how),
        )
        np.testing.assert_array_equal(
            tcpy.conv2d_backward_input(dy, w, input_size=(9, 8), **how, **scratch, scratch_dx=kind(dx)),
            tcpy.conv2d_backward_input(dy, w, input_size=(9, 8), **how),
        )


def test_contiguous_arrays_are_never_copied() -> None:
    (x, *_), context = arrays(), tcpy.default_context()
    again = ops._dense(context, "x", x.swapaxes(2, 3).swapaxes(2, 3)).array
    assert ops._dense(context, "x", x).array is x
    assert again is not None
    assert again.base is x


def test_views_are_read_right(context: tcpy.Context) -> None:
    x, w, b, dy = arrays()
    views = [
        np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, 3)), 3, 1),  # NHWC memory
        np.pad(x, 2)[2:-2, 2:-2, 2:-2, 2:-2],
        x[:, ::-1][:, ::-1],
        np.asfortranarray(x),
        np.repeat(x, 2, axis=3)[..., ::2],
    ]
    y = tcpy.conv2d_forward(x, w, b, padding=1, context=context)
    dw = tcpy.conv2d_backward_weight(x, dy, kernel_size=3, padding=1, context=context)
    for view in views:
        before = view.copy()
        np.testing.assert_array_equal(tcpy.conv2d_forward(view, w, b, padding=1, context=context), y)
        np.testing.assert_array_equal(
            tcpy.conv2d_backward_weight(view, dy, kernel_size=3, padding=1, context=context), dw
        )
        np.testing.assert_array_equal(view, before)


def test_one_channel_slice(context: tcpy.Context) -> None:
    x = np.array([[[[1]], [[2]]]], H)
    assert tcpy.conv2d_forward(x[:, 1:], np.ones((1, 1, 1, 1), H), context=context).item() == 2


def test_read_only_and_other_array_likes() -> None:
    x, w, b, _ = arrays()
    y = tcpy.conv2d_forward(x, w, b)
    for array in (x, w, b):
        array.flags.writeable = False

    class Exported:
        __array_interface__ = w.__array_interface__

    np.testing.assert_array_equal(tcpy.conv2d_forward(x, w, b), y)
    np.testing.assert_array_equal(tcpy.conv2d_forward(memoryview(x), Exported(), b.view(np.recarray)), y)


# ---- The edges -------------------------------------------------------------------------------------------------------


def test_empty_batch(context: tcpy.Context) -> None:
    x, w, b, dy = (array[:0] if array.ndim == 4 and array.shape[0] == 2 else array for array in arrays())
    assert tcpy.conv2d_forward(x, w, b, padding=1, context=context).shape == (0, 5, 9, 8)
    assert tcpy.conv2d_backward_input(dy, w, input_size=(9, 8), padding=1, context=context).shape == (0, 3, 9, 8)
    out = np.full(w.shape, np.nan, H)
    tcpy.conv2d_backward_weight(x, dy, kernel_size=3, padding=1, out=out, context=context)
    np.testing.assert_array_equal(out, np.zeros(w.shape))


def test_a_large_batch_overflows_only_float16(context: tcpy.Context) -> None:
    x = np.ones((65536, 1, 1, 1), H)
    assert np.isposinf(tcpy.conv2d_backward_weight(x, x, kernel_size=1, context=context).item())
    assert tcpy.conv2d_backward_weight(x, x, kernel_size=1, dtype=np.float32, context=context).item() == 65536


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_a_special_value_reaches_its_own_outputs_only(context: tcpy.Context, special: float) -> None:
    x, w, b, dy = (array.copy() for array in arrays())
    how: dict[str, Any] = {"stride": (1, 1), "padding": (1, 1), "groups": 1}
    x[1, 2, 4, 5] = special
    dy[0, 3, 2, 2] = special
    x64, w64, dy64 = x.astype(float), w.astype(float), dy.astype(float)
    y = tcpy.conv2d_forward(x, w, b, **how, context=context)
    dx = tcpy.conv2d_backward_input(dy, w, input_size=(9, 8), **how, context=context)
    dw = tcpy.conv2d_backward_weight(x, dy, kernel_size=3, **how, context=context)
    with np.errstate(invalid="ignore"):
        exact = [
            reference.conv2d_forward(x64, w64, **how),
            reference.conv2d_backward_input(dy64, w64, (9, 8), **how),
            reference.conv2d_backward_weight(x64, dy64, (3, 3), **how),
        ]
    for got, wanted in zip((y, dx, dw), exact, strict=True):
        assert 0 < np.isfinite(wanted).sum() < wanted.size
        np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
        np.testing.assert_array_equal(np.where(np.isinf(got), got, 0), np.where(np.isinf(wanted), wanted, 0))


def test_padding_takes_part_as_zeros(context: tcpy.Context) -> None:
    how: dict[str, Any] = {"padding": 1, "context": context}
    ones, infinite = np.ones((1, 1, 3, 3), H), np.full((1, 1, 3, 3), np.inf, H)
    assert np.isnan(tcpy.conv2d_forward(ones, infinite, **how)[0, 0, 0, 0])
    assert np.isposinf(tcpy.conv2d_forward(ones, infinite, **how)[0, 0, 1, 1])
    assert np.isposinf(tcpy.conv2d_forward(infinite, ones, **how)).all()
    assert np.isnan(tcpy.conv2d_backward_weight(ones, infinite, kernel_size=3, **how)[0, 0, 0, 0])
    assert np.isposinf(tcpy.conv2d_backward_input(ones, infinite, input_size=3, **how)).all()


def test_overflow_gives_infinity_and_subnormals_stay(context: tcpy.Context) -> None:
    def one(value: float) -> Any:
        return np.full((1, 1, 1, 1), value, H)

    assert np.isneginf(tcpy.conv2d_forward(one(-300), one(300), context=context)).all()
    assert tcpy.conv2d_forward(one(2**-24), one(1), context=context).item() == 2**-24
    assert tcpy.conv2d_forward(one(2**-12), one(2**-12), context=context).item() == 2**-24


# ---- The same bits ---------------------------------------------------------------------------------------------------


def test_same_bits_whatever_the_threads_and_the_batch(context: tcpy.Context) -> None:
    rng = np.random.default_rng(5)
    x, w = halves(rng, 5, 12, 15, 14), halves(rng, 20, 12, 3, 3)
    dy = halves(rng, 5, 20, 15, 14)

    def results() -> list[bytes]:
        y = tcpy.conv2d_forward(x, w, padding=1, context=context)
        dx = tcpy.conv2d_backward_input(dy, w, input_size=(15, 14), padding=1, context=context)
        dw = tcpy.conv2d_backward_weight(x, dy, kernel_size=3, padding=1, context=context)
        return [y.tobytes(), dx.tobytes(), dw.tobytes(), y[3:4].tobytes(), dx[3:4].tobytes()]

    context.threads = 1
    first = results()
    for threads in (2, 3, 7):
        context.threads = threads
        assert results() == first
    alone = tcpy.conv2d_forward(x[3:4], w, padding=1, context=context)
    alone_dx = tcpy.conv2d_backward_input(dy[3:4], w, input_size=(15, 14), padding=1, context=context)
    assert [alone.tobytes(), alone_dx.tobytes()] == first[3:]


def test_same_bits_at_every_alignment(context: tcpy.Context) -> None:
    x, w, b, _ = arrays()
    y = tcpy.conv2d_forward(x, w, b, context=context)
    for shift in (1, 3, 16):
        moved = np.empty(x.size + shift, H)[shift:].reshape(x.shape)
        moved[:] = x
        out = np.empty(y.size + shift, H)[shift:].reshape(y.shape)
        np.testing.assert_array_equal(tcpy.conv2d_forward(moved, w, b, out=out, context=context), y)


# ---- Sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 7, 224])
@pytest.mark.parametrize("kernel", [1, 2, 3, 6])
@pytest.mark.parametrize("padding", [0, 1, 4])
@pytest.mark.parametrize("stride", [1, 2, 3, 9])
def test_out_dim(size: int, kernel: int, padding: int, stride: int) -> None:
    expected = (size + 2 * padding - kernel) // stride + 1
    assert tcpy.conv2d_out_dim(size, kernel, padding, stride) == expected
