"""The operations, on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, sizeof
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ._abi import Conv2dDesc, Dtype, GemmBatchedDesc, GemmDesc
from ._arguments import (
    F16,
    F32,
    Array,
    array_of,
    copy_of,
    dtype_of,
    expect_shape,
    flag,
    integer,
    new_array,
    pair,
    real,
    shape_error,
    shown,
    type_error,
    writable,
)
from ._load import lib
from ._staging import Operand, Operands
from .buffer import Buffer
from .context import Context, Held, chosen

__all__ = [
    "conv2d_backward_input",
    "conv2d_backward_weight",
    "conv2d_forward",
    "conv2d_out_dim",
    "conv2d_scratch_col_bytes",
    "conv2d_scratch_dx_bytes",
    "gemm",
]

Half: TypeAlias = NDArray[np.float16]
Pair: TypeAlias = int | Sequence[int]
Scratch: TypeAlias = Buffer | Array | None

_F16 = int(Dtype.F16)
_DTYPES = {F16: _F16, F32: int(Dtype.F32)}


def _call(function: Any, context: Context, desc: Any, *operands: Operand) -> None:
    """Call the library, with buffers over the operands' memory or copies of it."""
    held: list[Held] = []
    try:
        buffers = Operands(context, operands, held)
        function(context._handle, byref(desc), *buffers.handles)
        buffers.finish()
    finally:
        context._release(held)


# ---- Convolution -----------------------------------------------------------------------------------------------------


def conv2d_out_dim(size: int, kernel: int, padding: int = 0, stride: int = 1) -> int:
    """Output size along one axis: ``floor((size + 2*padding - kernel) / stride) + 1``.

    Parameters
    ----------
    size, kernel, padding, stride : int
        Along this axis.

    Returns
    -------
    int
        Under 1 if the kernel is larger than the padded input: then there is no output.

    Raises
    ------
    ValueError
        If `size`, `kernel` or `stride` is under 1, `padding` negative, or a value too large.
    TypeError
        For anything but integers.

    Examples
    --------
    >>> import tcpy
    >>> tcpy.conv2d_out_dim(224, 7, padding=3, stride=2)
    112
    """
    given = ("size", size, 1), ("kernel", kernel, 1), ("padding", padding, 0), ("stride", stride, 1)
    return int(lib.tc_conv2d_out_dim(*(integer(*one) for one in given)))


def conv2d_scratch_col_bytes(batch: int, in_channels: int, kernel_size: Pair, output_size: Pair) -> int:
    """Bytes that `scratch_col` must hold: ``batch * (in_channels*kH*kW) * out_H*out_W * 2``.

    Parameters
    ----------
    batch, in_channels : int
    kernel_size, output_size : int or (int, int)
        Height and width.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If a size is negative or the product too large.
    TypeError
        For anything but integers.

    Examples
    --------
    >>> import tcpy
    >>> tcpy.conv2d_scratch_col_bytes(1, 3, 7, (112, 112))
    3687936
    """
    kernel, output = pair("kernel_size", kernel_size, 0), pair("output_size", output_size, 0)
    sizes = integer("batch", batch, 0), integer("in_channels", in_channels, 0)
    return int(lib.tc_conv2d_scratch_col_bytes(*sizes, *kernel, *output))


def conv2d_scratch_dx_bytes(batch: int, in_channels: int, input_size: Pair) -> int:
    """Bytes that `scratch_dx` must hold: ``batch * in_channels * H * W * 4``.

    Parameters
    ----------
    batch, in_channels : int
    input_size : int or (int, int)
        Height and width.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If a size is negative or the product too large.
    TypeError
        For anything but integers.

    Examples
    --------
    >>> import tcpy
    >>> tcpy.conv2d_scratch_dx_bytes(1, 3, 224)
    602112
    """
    sizes = integer("batch", batch, 0), integer("in_channels", in_channels, 0)
    return int(lib.tc_conv2d_scratch_dx_bytes(*sizes, *pair("input_size", input_size, 0)))


class _Conv(NamedTuple):
    """A convolution's descriptor, and the shapes of its tensors."""

    desc: Conv2dDesc
    x: tuple[int, ...]
    weight: tuple[int, ...]
    y: tuple[int, ...]


def _conv(x: tuple[int, ...], weight: tuple[int, ...], stride: Pair, padding: Pair, groups: int) -> _Conv:
    (batch, in_channels, h, w), (out_channels, _, kh, kw) = x, weight
    (stride_h, stride_w), (pad_h, pad_w) = pair("stride", stride, 1), pair("padding", padding, 0)
    out_h = lib.tc_conv2d_out_dim(h, kh, pad_h, stride_h)
    out_w = lib.tc_conv2d_out_dim(w, kw, pad_w, stride_w)
    if min(out_h, out_w) < 1:
        raise shape_error(
            f"a kernel of {kh}x{kw} doesn't fit into an input of {h}x{w} with padding ({pad_h}, {pad_w}): "
            f"the output would be {out_h}x{out_w}"
        )
    desc = Conv2dDesc(
        *(sizeof(Conv2dDesc), batch, in_channels, out_channels, h, w, kh, kw, out_h, out_w),
        *(pad_h, pad_h, pad_w, pad_w, stride_h, stride_w, 1, 1, groups),
        alpha=1.0,
    )
    return _Conv(desc, x, weight, (batch, out_channels, out_h, out_w))


def _output(out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any] = F16) -> Array:
    return new_array("the result", shape, dtype) if out is None else writable("out", out, (dtype,), shape)


def _scratch(name: str, scratch: Scratch) -> Operand:
    """Scratch is bytes: a Buffer, or an array of any dtype."""
    if scratch is None:
        return Operand(name, None, 0)
    array = scratch.numpy() if isinstance(scratch, Buffer) else scratch
    if not isinstance(array, np.ndarray) or array.dtype.hasobject:
        raise type_error(f"{name} is {shown(array)}, a Buffer or an array of numbers is needed")
    array = writable(name, array, (array.dtype,), array.shape)
    return Operand(name, array, array.nbytes, "scratch")


def _copied(context: Context, name: str, array: Array) -> Array:
    """A contiguous copy, with what the calls of a batch still have to write."""
    context._settle()
    return copy_of(name, array)


def _dense(context: Context, name: str, array: Array | None) -> Operand:
    """The array itself if it is C-contiguous, else a copy."""
    if array is None:
        return Operand(name, None, 0)
    return Operand(name, array if array.flags.c_contiguous else _copied(context, name, array), array.nbytes)


def _result(array: Array) -> Operand:
    return Operand("out", array, array.nbytes, "output")


def conv2d_forward(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    stride: Pair = 1,
    padding: Pair = 0,
    groups: int = 1,
    out: Half | None = None,
    scratch_col: Scratch = None,
    context: Context | None = None,
) -> Half:
    """2-D convolution, as deep-learning frameworks mean it (cross-correlation).

    Parameters
    ----------
    x : ndarray of float16, shape (N, IC, H, W)
        Used as it is if C-contiguous, else copied, like every input. Outputs and scratch never are.
    weight : ndarray of float16, shape (OC, IC/groups, kH, kW)
    bias : ndarray of float16, shape (OC,), optional
    stride, padding : int or (int, int)
        Along height and width.
    groups : int
        Divides both channel counts; IC groups make a depthwise convolution.
    out : ndarray of float16, shape (N, OC, out_H, out_W), optional
        Where to put the result: C-contiguous, and apart from all other operands.
    scratch_col : Buffer or ndarray, optional
        `conv2d_scratch_col_bytes` bytes that the library may use instead of memory of its own.
    context : Context, optional
        The default context if left out.

    Returns
    -------
    ndarray of float16, shape (N, OC, out_H, out_W)
        `out` if it was given. Sums are taken in float32 and rounded once.

    Raises
    ------
    TypeError
        If an array isn't float16, or a size no integer.
    ValueError
        If shapes, sizes or groups don't fit, or `out` overlaps another operand.
    MemoryError
        If there is not enough memory.
    TcError
        The base of all errors that have a status; see there.

    Examples
    --------
    >>> import numpy as np, tcpy
    >>> x = np.arange(9, dtype=np.float16).reshape(1, 1, 3, 3)
    >>> tcpy.conv2d_forward(x, np.ones((1, 1, 2, 2), np.float16), np.array([100], np.float16))
    array([[[[108., 112.],
             [120., 124.]]]], dtype=float16)
    """
    x, weight = array_of("x", x, (4,)), array_of("weight", weight, (4,))
    groups = integer("groups", groups, 1)
    if x.shape[1] != weight.shape[1] * groups:
        needed = f"weight of shape {weight.shape} in {groups} groups needs {weight.shape[1] * groups}"
        raise shape_error(f"x has {x.shape[1]} channels, {needed}")
    conv = _conv(x.shape, weight.shape, stride, padding, groups)
    if bias is not None:
        bias = array_of("bias", bias, (1,))
        expect_shape("bias", bias, weight.shape[:1], "one for each output channel")
    y = _output(out, conv.y)
    context, scratch = chosen(context), _scratch("scratch_col", scratch_col)
    inputs = _dense(context, "x", x), _dense(context, "weight", weight), _dense(context, "bias", bias)
    _call(lib.tc_conv2d_forward_desc, context, conv.desc, *inputs, _result(y), scratch)
    return y


def conv2d_backward_input(
    dy: ArrayLike,
    weight: ArrayLike,
    *,
    input_size: Pair,
    stride: Pair = 1,
    padding: Pair = 0,
    groups: int = 1,
    out: Half | None = None,
    scratch_col: Scratch = None,
    scratch_dx: Scratch = None,
    context: Context | None = None,
) -> Half:
    """Gradient of a convolution by its input.

    Parameters
    ----------
    dy : ndarray of float16, shape (N, OC, out_H, out_W)
        Gradient of the loss by the convolution's output. Inputs are copied where they aren't C-contiguous.
    weight : ndarray of float16, shape (OC, IC/groups, kH, kW)
    input_size : int or (int, int)
        H and W of the input; several of them can give the same output size.
    stride, padding, groups
        As in `conv2d_forward`.
    out : ndarray of float16, shape (N, IC, H, W), optional
        Where to put the result: C-contiguous, and apart from all other operands.
    scratch_col, scratch_dx : Buffer or ndarray, optional
        `conv2d_scratch_col_bytes` and `conv2d_scratch_dx_bytes` bytes that the library may use.
    context : Context, optional
        The default context if left out.

    Returns
    -------
    ndarray of float16, shape (N, IC, H, W)
        `out` if it was given.

    Raises
    ------
    TypeError, ValueError, MemoryError, TcError
        As `conv2d_forward`.

    Examples
    --------
    >>> import numpy as np, tcpy
    >>> dy = np.ones((1, 1, 2, 2), np.float16)
    >>> tcpy.conv2d_backward_input(dy, np.ones((1, 1, 2, 2), np.float16), input_size=3)
    array([[[[1., 2., 1.],
             [2., 4., 2.],
             [1., 2., 1.]]]], dtype=float16)
    """
    dy, weight = array_of("dy", dy, (4,)), array_of("weight", weight, (4,))
    groups = integer("groups", groups, 1)
    x_shape = (dy.shape[0], weight.shape[1] * groups, *pair("input_size", input_size, 1))
    conv = _conv(x_shape, weight.shape, stride, padding, groups)
    expect_shape("dy", dy, conv.y, "the convolution's output")
    dx = _output(out, conv.x)
    scratch = _scratch("scratch_col", scratch_col), _scratch("scratch_dx", scratch_dx)
    context = chosen(context)
    inputs = _dense(context, "dy", dy), _dense(context, "weight", weight)
    _call(lib.tc_conv2d_backward_input_desc, context, conv.desc, *inputs, _result(dx), *scratch)
    return dx


def conv2d_backward_weight(
    x: ArrayLike,
    dy: ArrayLike,
    *,
    kernel_size: Pair,
    stride: Pair = 1,
    padding: Pair = 0,
    groups: int = 1,
    dtype: DTypeLike | None = None,
    out: Array | None = None,
    scratch_col: Scratch = None,
    context: Context | None = None,
) -> Array:
    """Gradient of a convolution by its weight, summed over the batch.

    Parameters
    ----------
    x : ndarray of float16, shape (N, IC, H, W)
        Inputs are copied where they aren't C-contiguous.
    dy : ndarray of float16, shape (N, OC, out_H, out_W)
        Gradient of the loss by the convolution's output.
    kernel_size : int or (int, int)
        kH and kW.
    stride, padding, groups
        As in `conv2d_forward`.
    dtype : float16 or float32, optional
        Of the result: float32 suits master weights. If left out, that of `out`, else float16.
    out : ndarray of float16 or float32, shape (OC, IC/groups, kH, kW), optional
        Where to put the result: C-contiguous, and apart from all other operands.
    scratch_col : Buffer or ndarray, optional
        `conv2d_scratch_col_bytes` bytes that the library may use.
    context : Context, optional
        The default context if left out.

    Returns
    -------
    ndarray, shape (OC, IC/groups, kH, kW)
        `out` if it was given.

    Raises
    ------
    TypeError, ValueError, MemoryError, TcError
        As `conv2d_forward`.

    Examples
    --------
    >>> import numpy as np, tcpy
    >>> x = np.arange(9, dtype=np.float16).reshape(1, 1, 3, 3)
    >>> tcpy.conv2d_backward_weight(x, np.ones((1, 1, 2, 2), np.float16), kernel_size=2, dtype=np.float32)
    array([[[[ 8., 12.],
             [20., 24.]]]], dtype=float32)
    """
    x, dy = array_of("x", x, (4,)), array_of("dy", dy, (4,))
    groups = integer("groups", groups, 1)
    if x.shape[1] % groups:
        raise shape_error(f"x has {x.shape[1]} channels, a multiple of groups = {groups} is needed")
    w_shape = (dy.shape[1], x.shape[1] // groups, *pair("kernel_size", kernel_size, 1))
    conv = _conv(x.shape, w_shape, stride, padding, groups)
    expect_shape("dy", dy, conv.y, "the convolution's output")
    dw = _output(out, conv.weight, _result_dtype(dtype, out=out))
    conv.desc.w_dtype = _DTYPES[dw.dtype]
    context, scratch = chosen(context), _scratch("scratch_col", scratch_col)
    inputs = _dense(context, "x", x), _dense(context, "dy", dy)
    _call(lib.tc_conv2d_backward_weight_desc, context, conv.desc, *inputs, _result(dw), scratch)
    return dw


def _result_dtype(dtype: DTypeLike | None, **given: Any) -> np.dtype[Any]:
    """float16 or float32: what is asked for, else that of the first array given, else float16."""
    if dtype is not None:
        return dtype_of("dtype", dtype, (F16, F32))
    for name, array in given.items():
        if isinstance(array, np.ndarray):
            return dtype_of(name, array.dtype, (F16, F32))
    return F16


# ---- GEMM ------------------------------------------------------------------------------------------------------------


class _Matrix(NamedTuple):
    """A matrix, or a stack of them, as the library takes it: stored rows of `ld` elements, perhaps transposed."""

    array: Array
    nbytes: int
    transposed: bool
    ld: int
    stride: int  # elements from one matrix of the stack to the next; 0: one for all

    def operand(self, name: str) -> Operand:
        return Operand(name, self.array, self.nbytes)


def _leading_dimension(rows: int, cols: int, row_step: int, col_step: int) -> int:
    """Elements from row to row where rows lie apart and their elements side by side, else 0."""
    if cols > 1 and col_step != 1:
        return 0
    if rows == 1:
        return cols
    return row_step if row_step >= cols else 0


def _matrix(context: Context, name: str, array: Array) -> _Matrix:
    """Take the memory as it is wherever strides allow, else a copy."""
    if not array.size:
        return _Matrix(array, 0, False, 0, 0)
    *stack, rows, cols = array.shape
    if array.flags.c_contiguous:
        return _Matrix(array, array.nbytes, False, cols, rows * cols if stack and stack[0] > 1 else 0)
    if all(step % array.itemsize == 0 for step in array.strides):
        *stack_step, row_step, col_step = (step // array.itemsize for step in array.strides)
        stride = stack_step[0] if stack and stack[0] > 1 else 0
        plain = _leading_dimension(rows, cols, row_step, col_step)
        ld = plain or _leading_dimension(cols, rows, col_step, row_step)
        if ld and stride >= 0:
            stored_rows, stored_cols = (rows, cols) if plain else (cols, rows)
            last = (stack[0] - 1) * stride if stack else 0
            elements = last + (stored_rows - 1) * ld + stored_cols
            return _Matrix(array, elements * array.itemsize, not plain, ld, stride)
    return _matrix(context, name, _copied(context, name, array))


def gemm(
    a: ArrayLike,
    b: ArrayLike,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Array | None = None,
    out: Array | None = None,
    dtype: DTypeLike | None = None,
    context: Context | None = None,
) -> Array:
    """``alpha * op(a) @ op(b) + beta * c``, for matrices or stacks of them.

    Parameters
    ----------
    a, b : ndarray of float16, two or three dimensions
        Matrices, or stacks (batch, rows, columns); a matrix, or a stack of one, serves every product of the other's
        stack. Views whose rows or columns are contiguous, such as transposed ones, are used as they are, others copied.
    transpose_a, transpose_b : bool
        Take the matrices of that operand transposed.
    alpha, beta : float
        Any that float32 can represent, infinities and nan among them. With `beta` 0, `c` isn't read; with `alpha` 0,
        `a` and `b` aren't.
    c : ndarray of float16 or float32, optional
        Of the result's shape and dtype. It stays as it is, since a copy takes the sum, unless it is `out` too.
    out : ndarray of float16 or float32, optional
        Where to put the result: C-contiguous, and apart from `a` and `b`. It may be `c`.
    dtype : float16 or float32, optional
        Of the result. If left out, that of `out` or `c`, else float16.
    context : Context, optional
        The default context if left out.

    Returns
    -------
    ndarray, shape (M, N) or (batch, M, N)
        `out` if it was given. Sums are taken in float32 and rounded once.

    Raises
    ------
    TypeError
        If `a` or `b` isn't float16, the dtypes of `c` and `out` don't suit, or a transpose is anything but a bool.
    ValueError
        If shapes don't fit, `beta` has no `c`, `alpha` or `beta` is too large, or `out` overlaps `a` or `b`.
    MemoryError
        If there is not enough memory.
    TcError
        The base of all errors that have a status; see there.

    Examples
    --------
    >>> import numpy as np, tcpy
    >>> a = np.arange(6, dtype=np.float16).reshape(2, 3)
    >>> tcpy.gemm(a, a.T, dtype=np.float32)
    array([[ 5., 14.],
           [14., 50.]], dtype=float32)
    """
    a, b = array_of("a", a, (2, 3)), array_of("b", b, (2, 3))
    context, alpha, beta = chosen(context), real("alpha", alpha), real("beta", beta)
    ta, tb = flag("transpose_a", transpose_a), flag("transpose_b", transpose_b)
    left, right = _matrix(context, "a", a), _matrix(context, "b", b)
    (m, k), (kb, n) = a.shape[-2:][:: -1 if ta else 1], b.shape[-2:][:: -1 if tb else 1]
    if k != kb:
        raise shape_error(f"op(a) is {m}x{k} and op(b) {kb}x{n}: the inner sizes must be equal")
    stack = _stack(a, b)
    result, target = _target(context, (*stack, m, n), c, out, dtype, beta)
    sizes = (m, n, k, ta ^ left.transposed, tb ^ right.transposed, alpha, beta, left.ld, right.ld, 0)
    dtypes = (_F16, _F16, _DTYPES[target.dtype])
    operands = left.operand("a"), right.operand("b"), _result(target)
    if stack:
        strides = (*stack, left.stride, right.stride, m * n)
        desc = GemmBatchedDesc(sizeof(GemmBatchedDesc), *sizes, *dtypes, 0, 0, 0, 0, *strides)
        _call(lib.tc_gemm_batched, context, desc, *operands)
    else:
        _call(lib.tc_gemm, context, GemmDesc(sizeof(GemmDesc), *sizes, *dtypes), *operands)
    if result is not target:
        context._settle()
        result[...] = target
    return result


def _stack(a: Array, b: Array) -> tuple[int, ...]:
    """The batch of the result; () for two matrices."""
    batches = {array.shape[0] for array in (a, b) if array.ndim == 3}
    if len(batches) > 1:
        batches.discard(1)
    if len(batches) > 1:
        raise shape_error(f"a has shape {a.shape} and b {b.shape}: the batches must be equal, or one of them 1")
    return tuple(batches)


def _target(
    context: Context, shape: tuple[int, ...], c: Any, out: Any, dtype: DTypeLike | None, beta: float
) -> tuple[Array, Array]:
    """The array to return, and the one to compute in, which starts as c: another one only where c and out are two."""
    if c is None and beta != 0:
        raise shape_error(f"beta is {beta}: it needs c")
    wanted = _result_dtype(dtype, out=out, c=c)
    if out is not None:
        out = writable("out", out, (wanted,), shape)
    if c is not None:
        c = array_of("c", c, (len(shape),), (wanted,))
        expect_shape("c", c, shape, "the result")
    if c is None or c is out or beta == 0:
        result = new_array("the result", shape, wanted) if out is None else out
        return result, result
    target = _copied(context, "c", c)
    return (target if out is None else out), target
