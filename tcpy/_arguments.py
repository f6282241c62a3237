"""Checks of what Python callers pass in: ctypes would cut or convert it silently."""

from __future__ import annotations

import numbers
import operator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ._abi import Status
from .errors import TcError, tc_error

Array: TypeAlias = NDArray[Any]

F16, F32 = np.dtype(np.float16), np.dtype(np.float32)


def shape_error(sentence: str) -> TcError:
    return tc_error(Status.SHAPE, sentence)


def size(name: str, value: object, least: int = -(2**63)) -> int:
    """A Python or NumPy integer that an int64_t holds."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} is {value!r}, an integer is needed") from None
    if not least <= number < 2**63:
        raise shape_error(f"{name} is {number}, {least} to 2**63-1 is allowed")
    return number


def pair(name: str, value: object, least: int) -> tuple[int, int]:
    """An integer for both axes, or a pair (h, w)."""
    if not isinstance(value, (tuple, list, np.ndarray)):
        both = size(name, value, least)
        return both, both
    if len(value) != 2:
        raise shape_error(f"{name} is {value!r}, an integer or a pair (h, w) is needed")
    return size(name, value[0], least), size(name, value[1], least)


def real(name: str, value: object) -> float:
    """A real number."""
    if not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is {value!r}, a real number is needed")
    return float(value)


def dtype_of(name: str, dtype: Any, allowed: tuple[np.dtype[Any], ...]) -> np.dtype[Any]:
    """One of the allowed dtypes, in the machine's byte order."""
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        raise TypeError(f"{name} is {dtype!r}, {_names(allowed)} is needed") from None
    if found not in allowed:
        raise TypeError(f"{name} is {found}, {_names(allowed)} is needed")
    return found


def _names(dtypes: tuple[np.dtype[Any], ...]) -> str:
    return " or ".join(map(str, dtypes))


def array_of(name: str, value: Any, ndims: tuple[int, ...], dtypes: tuple[np.dtype[Any], ...] = (F16,)) -> Array:
    """An input as it is: an array of one of the dtypes and numbers of dimensions."""
    if type(value) is not np.ndarray:
        if isinstance(value, np.ma.MaskedArray):
            raise TypeError(f"{name} is a masked array, whose mask would be lost: pass {name}.filled(...)")
        value = np.asarray(value)
    if value.dtype not in dtypes:
        raise TypeError(f"{name} is {value.dtype}, {_names(dtypes)} is needed")
    if value.ndim not in ndims:
        raise shape_error(f"{name} has shape {value.shape}, {' or '.join(map(str, ndims))} dimensions are needed")
    checked: Array = value
    return checked


def expect_shape(name: str, array: Array, shape: tuple[int, ...], why: str) -> None:
    if array.shape != shape:
        raise shape_error(f"{name} has shape {array.shape}, {shape} is needed ({why})")


def writable(name: str, value: Any, dtypes: tuple[np.dtype[Any], ...], shape: tuple[int, ...]) -> Array:
    """An output that is filled in place, never through a copy."""
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{name} is {type(value).__name__}, a NumPy array is needed")
    expect_shape(name, array_of(name, value, (len(shape),), dtypes), shape, "the result")
    if not (value.flags.c_contiguous and value.flags.writeable):
        raise tc_error(Status.ARGUMENT, f"{name} must be C-contiguous and writeable, since it is filled in place")
    return value
