"""Checks of what Python callers pass in: ctypes would cut or convert it silently."""

from __future__ import annotations

import ctypes
import inspect
import math
import numbers
import operator
import reprlib
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ._abi import Status
from .errors import TcError, tc_error

Array: TypeAlias = NDArray[Any]

F16, F32 = np.dtype(np.float16), np.dtype(np.float32)

_INT64_MAX = 2**63 - 1
_F32_MAX = np.finfo(F32).max
_F32_FINITE = float(_F32_MAX)
_F32_END = float(2**128 - 2**103)  # from here on a number rounds to infinity


class _Short(reprlib.Repr):
    """A value in a sentence, cut to a length that can be read."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 60

    repr_int = reprlib.Repr.repr_instance  # which copes with an integer of too many digits to print


shown = _Short().repr


# ---- Errors ----------------------------------------------------------------------------------------------------------


def _speaker() -> str:
    """Whom an error is from, as the library's own begin: the innermost public function at work."""
    frame = inspect.currentframe()
    while frame and frame.f_globals.get("__package__") == __package__:
        if frame.f_code.co_name in frame.f_globals.get("__all__", ()):
            return f"{frame.f_code.co_name}: "
        frame = frame.f_back
    return ""


def fault(status: Status, sentence: str) -> TcError:
    return tc_error(status, _speaker() + sentence)


def shape_error(sentence: str) -> TcError:
    return fault(Status.SHAPE, sentence)


def type_error(sentence: str) -> TypeError:
    return TypeError(_speaker() + sentence)


# ---- Numbers ---------------------------------------------------------------------------------------------------------


def integer(name: str, value: object, least: int, most: int = _INT64_MAX) -> int:
    """A Python or NumPy integer of a range that an int64_t holds."""
    if type(value) is int and least <= value <= most:
        return value
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise type_error(f"{name} is {shown(value)}, an integer is needed") from None
    if not least <= number <= most:
        raise shape_error(f"{name} is {shown(number)}, {least} to {most} is allowed")
    return number


def integers(name: str, value: object, least: int) -> int | tuple[int, ...]:
    """An integer, or as many as a tuple, a list or an array holds."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (tuple, list)):
        return tuple(integer(name, item, least) for item in value)
    return integer(name, value, least)


def pair(name: str, value: object, least: int) -> tuple[int, int]:
    """An integer for both axes, or a pair (h, w)."""
    if type(value) is int and least <= value <= _INT64_MAX:
        return value, value
    found = integers(name, value, least)
    if isinstance(found, int):
        return found, found
    if len(found) != 2:
        raise shape_error(f"{name} is {shown(value)}, an integer or a pair (h, w) is needed")
    return found[0], found[1]


def shape_of(value: object) -> tuple[int, ...]:
    """The shape that an integer or a sequence of them means."""
    found = integers("shape", value, 0)
    return (found,) if isinstance(found, int) else found


def real(name: str, value: object) -> float:
    """A real number that float32 can represent; an infinity only if it was given as such."""
    if type(value) is float and -_F32_FINITE <= value <= _F32_FINITE:
        return value
    if not isinstance(value, numbers.Real):
        raise type_error(f"{name} is {shown(value)}, a real number is needed")
    try:
        number = float(value)
    except OverflowError:  # an integer or a fraction beyond float64
        number = math.inf
    if abs(number) >= _F32_END and abs(value) != math.inf:
        allowed = f"-{_F32_MAX!s} to {_F32_MAX!s}, inf, -inf or nan is allowed"
        raise fault(Status.ARGUMENT, f"{name} is {shown(value)}, {allowed}")
    return number


def flag(name: str, value: object) -> bool:
    """True or False, and nothing that is only taken for one."""
    if not isinstance(value, (bool, np.bool_)):
        raise type_error(f"{name} is {shown(value)}, True or False is needed")
    return bool(value)


# ---- Arrays ----------------------------------------------------------------------------------------------------------


def _dtype(name: str, dtype: Any, allowed: tuple[np.dtype[Any], ...] = ()) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):  # SyntaxError: NumPy reads parentheses in a string as Python
        raise type_error(f"{name} is {shown(dtype)}, {_names(allowed) or 'a dtype'} is needed") from None
    return found


def plain_dtype(name: str, dtype: Any) -> np.dtype[Any]:
    """A dtype of elements that lie in plain memory."""
    found = _dtype(name, dtype)
    if found.hasobject:
        raise type_error(f"{name} is {found}, one without Python objects is needed")
    if not found.itemsize:
        raise fault(Status.ARGUMENT, f"{name} is {found}, whose elements have 0 bytes: at least 1 is needed")
    return found


def dtype_of(name: str, dtype: Any, allowed: tuple[np.dtype[Any], ...]) -> np.dtype[Any]:
    """One of the allowed dtypes, in the machine's byte order."""
    found = _dtype(name, dtype, allowed)
    if found not in allowed:
        raise type_error(f"{name} is {found}, {_names(allowed)} is needed")
    return found


def _names(dtypes: tuple[np.dtype[Any], ...]) -> str:
    return " or ".join(map(str, dtypes))


def refuse_mask(name: str, value: object) -> None:
    if isinstance(value, np.ma.MaskedArray):
        raise type_error(f"{name} is a masked array, whose mask would be lost: pass {name}.filled(...)")


def array_of(name: str, value: Any, ndims: tuple[int, ...], dtypes: tuple[np.dtype[Any], ...] = (F16,)) -> Array:
    """An input as it is: an array of one of the dtypes and numbers of dimensions."""
    if type(value) is not np.ndarray:
        refuse_mask(name, value)
        try:
            value = np.asarray(value)
        except (TypeError, ValueError) as error:  # of a nested list whose rows differ, say
            raise type_error(f"{name} is {shown(value)}, an array of {_names(dtypes)} is needed: {error}") from error
    if value.dtype not in dtypes:
        raise type_error(f"{name} is {value.dtype}, {_names(dtypes)} is needed")
    if value.ndim not in ndims:
        raise shape_error(f"{name} has shape {value.shape}, {' or '.join(map(str, ndims))} dimensions are needed")
    checked: Array = value
    return checked


def address_of(array: Array) -> int:
    """Where the first element lies. NumPy's own ways take microseconds; this one refuses what is empty or read-only."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return array.ctypes.data


def expect_shape(name: str, array: Array, shape: tuple[int, ...], why: str) -> None:
    if array.shape != shape:
        raise shape_error(f"{name} has shape {array.shape}, {shape} is needed ({why})")


def writable(name: str, value: Any, dtypes: tuple[np.dtype[Any], ...], shape: tuple[int, ...]) -> Array:
    """An output that is filled in place, never through a copy."""
    if not isinstance(value, np.ndarray):
        raise type_error(f"{name} is {type(value).__name__}, a NumPy array is needed")
    expect_shape(name, array_of(name, value, (len(shape),), dtypes), shape, "the result")
    for needed, there in (("C-contiguous", value.flags.c_contiguous), ("writeable", value.flags.writeable)):
        if not there:
            raise fault(Status.ARGUMENT, f"{name} isn't {needed}, which it must be, since it is filled in place")
    return value


def new_array(what: str, shape: tuple[int, ...], dtype: np.dtype[Any], memory: Array | None = None) -> Array:
    """An array, over its own memory if none is given."""
    try:
        made: Array = np.ndarray(shape, dtype, memory)
    except (MemoryError, ValueError) as error:  # ValueError: more bytes or dimensions than any array can have
        status = Status.MEMORY if isinstance(error, MemoryError) else Status.SHAPE
        raise fault(status, f"{what} can't have shape {shown(shape)} and dtype {dtype}: {error}") from error
    return made


def copy_of(name: str, array: Array) -> Array:
    """A C-contiguous copy."""
    copy = new_array(f"the copy of {name}", array.shape, array.dtype)
    copy[...] = array
    return copy
