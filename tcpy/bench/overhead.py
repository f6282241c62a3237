"""Other ways to make a call than with NumPy arrays, for what the smallest call costs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from ctypes import byref, sizeof
from functools import partial
from typing import Any, TypeAlias

from .. import _load, ops
from .._abi import GemmDesc, Status
from ..buffer import Buffer, empty
from ..context import Context
from ..errors import tc_error
from .problems import Array, Call, Operands, our_call
from .suites import RESULT, Case, Conv

Way: TypeAlias = Callable[[Case, str, Operands], Call]


def _prepared(context: Context, case: Case, op: str, data: Operands) -> Call:
    """Arrays that `tcpy.empty` made, the result's among them."""
    placed = {name: empty(array.shape, context=context) for name, array in data.items()}
    for name, array in data.items():
        placed[name][...] = array
    return our_call(context, case, op, placed, out=placed[RESULT[op]])


def _descriptor(case: Case) -> Any:
    if isinstance(case, Conv):
        x, weight, _ = case.tensors.values()
        return ops._conv(x, weight, case.stride, case.padding, case.groups).desc
    sizes = (case.m, case.n, case.k, case.transpose_a, case.transpose_b)
    return GemmDesc(sizeof(GemmDesc), *sizes, alpha=1.0)


# The C functions, and the order of their tensors; None: no bias, no scratch.
_FUNCTIONS: dict[str, tuple[str, tuple[str | None, ...]]] = {
    "gemm": ("tc_gemm", ("a", "b", "c")),
    "forward": ("tc_conv2d_forward_desc", ("x", "weight", None, "y", None)),
    "dx": ("tc_conv2d_backward_input_desc", ("y", "weight", "x", None, None)),
    "dw": ("tc_conv2d_backward_weight_desc", ("x", "y", "weight", None)),
}


def _buffer(context: Context, array: Array) -> Buffer:
    buffer = Buffer(array.nbytes, context)
    buffer.numpy(array.dtype, array.shape)[...] = array
    return buffer


def _arguments(context: Context, case: Case, op: str, data: Operands) -> list[Any]:
    """What the C function takes. They keep the buffers alive: byref holds the descriptor, and that the buffers."""
    desc, order = _descriptor(case), _FUNCTIONS[op][1]
    desc.buffers = {name: _buffer(context, array) for name, array in data.items()}
    handles = [ctypes.c_void_p(desc.buffers[name]._live.handle if name else None) for name in order]
    return [ctypes.c_void_p(context._handle), byref(desc), *handles]


def _c_function(context: Context, case: Case, op: str, data: Operands) -> Call:
    """The C function by ctypes, with nothing to convert or check."""
    library = ctypes.CDLL(_load.path)  # functions of its own, without tcpy's types and error checks
    call = partial(getattr(library, _FUNCTIONS[op][0]), *_arguments(context, case, op, data))
    if (status := call()) != Status.OK:
        raise tc_error(Status(status), _load.lib.tc_last_error().decode())
    return call


def _ctypes_alone(context: Context, case: Case, op: str, data: Operands) -> Call:
    """A C function that only returns, called with the same arguments."""
    return partial(ctypes.CDLL(_load.path).tc_api_version, *_arguments(context, case, op, data))


def ways(context: Context) -> Iterator[tuple[str, Way]]:
    """Names, and what prepares a call."""
    for name, way in {"prepared": _prepared, "C function": _c_function, "ctypes alone": _ctypes_alone}.items():
        yield name, partial(way, context)
