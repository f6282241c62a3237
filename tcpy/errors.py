"""Exceptions: the library's statuses as Python knows such faults."""

from __future__ import annotations

from typing import Any

from ._abi import Status

__all__ = ["TcError"]


class TcError(Exception):
    """Any failure that the library reports, in its own words, or that tcpy sees first.

    What is raised is also the standard exception for such a fault: `ValueError` for arguments, shapes, overlaps and
    environment values, `MemoryError`, `NotImplementedError` for what isn't built, `TimeoutError`, `RuntimeError` for
    a closed context, a failed device or calls out of order. A wrong dtype is a plain `TypeError`.

    Attributes
    ----------
    status : Status
        The library's number for the fault; OK in a TcError that isn't from here.

    Examples
    --------
    >>> import numpy as np, tcpy
    >>> try:
    ...     tcpy.gemm(np.ones((2, 3), np.float16), np.ones((4, 5), np.float16))
    ... except ValueError as error:
    ...     print(type(error).__name__, error.status.name)
    TcShapeError SHAPE
    """

    status = Status.OK

    def __reduce__(self) -> tuple[Any, ...]:
        return tc_error, (self.status, str(self))


_STANDARD: dict[Status, type[Exception]] = {
    Status.ARGUMENT: ValueError,
    Status.SHAPE: ValueError,
    Status.BUFFER: ValueError,
    Status.ALIGNMENT: ValueError,
    Status.OVERLAP: ValueError,
    Status.MEMORY: MemoryError,
    Status.UNSUPPORTED: NotImplementedError,
    Status.ENVIRONMENT: ValueError,
    Status.NO_DEVICE: RuntimeError,
    Status.DEVICE: RuntimeError,
    Status.TIMEOUT: TimeoutError,
    Status.CLOSED: RuntimeError,
    Status.STATE: RuntimeError,
}


def _error_class(status: Status, standard: type[Exception]) -> type[TcError]:
    name = f"Tc{status.name.title().replace('_', '')}Error"
    doc = f"TC_ERROR_{status.name}, and a {standard.__name__}."
    return type(name, (TcError, standard), {"status": status, "__doc__": doc, "__module__": __name__})


_CLASSES = {Status.OK: TcError}
_CLASSES |= {status: _error_class(status, standard) for status, standard in _STANDARD.items()}


def tc_error(status: Status, sentence: str) -> TcError:
    """The exception for a status."""
    return _CLASSES[status](sentence)
