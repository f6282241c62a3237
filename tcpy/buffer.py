"""Buffers: memory that both NumPy and the library see."""

from __future__ import annotations

import math
from collections.abc import Sequence
from ctypes import byref, c_void_p
from typing import Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike

from ._abi import Status
from ._arguments import (
    Array,
    address_of,
    fault,
    integer,
    new_array,
    plain_dtype,
    refuse_mask,
    shape_error,
    shape_of,
    shown,
    type_error,
)
from ._load import lib
from .context import Context, at_end, chosen

__all__ = ["Buffer", "empty"]


class Memory:
    """A library buffer, freed with the last reference; NumPy views refer to it. `source` is the wrapped array."""

    def __init__(self, context: Context, nbytes: int, source: Array | None = None) -> None:
        handle, address = c_void_p(), c_void_p()
        if source is None:
            lib.tc_buffer_alloc(context._handle, nbytes, byref(handle))
        else:
            lib.tc_buffer_wrap(context._handle, address_of(source), nbytes, byref(handle))
        self.context, self.source, self.nbytes, self.handle = context, source, nbytes, handle.value
        at_end(self, lib.tc_buffer_free, context._handle, self.handle)
        lib.tc_buffer_map(self.handle, byref(address))
        self.address = address.value or 0

    @property
    def __array_interface__(self) -> dict[str, Any]:
        read_only = self.source is not None and not self.source.flags.writeable
        return {"version": 3, "shape": (self.nbytes,), "typestr": "|u1", "data": (self.address, read_only)}


def memory_of(array: Array) -> Memory | None:
    """The memory that an array begins, if it came from a Buffer."""
    base: Any = array.base
    if type(base) is np.ndarray:
        base = base.base
    return base if type(base) is Memory and base.address == address_of(array) else None


class Buffer:
    """Memory for tensors: new and zeroed, or that of an existing object.

    A buffer keeps its context's memory alive, and a view (`numpy`, `memoryview`, DLPack, ``np.asarray``) keeps the
    buffer's: views stay valid after `close`, after `Context.close` and when the Buffer itself is gone.

    Parameters
    ----------
    nbytes : int
        Size in bytes; 0 is fine.
    context : Context, optional
        The default context if left out.

    Raises
    ------
    ValueError
        If `nbytes` is negative or beyond 64 bits.
    MemoryError
        If there is not enough memory.

    Examples
    --------
    >>> import numpy as np, tcpy
    >>> buffer = tcpy.Buffer(12)
    >>> view = buffer.numpy(np.float16, (2, 3))
    >>> view[:] = 1
    >>> buffer.close()
    >>> float(view.sum())
    6.0
    """

    _memory: Memory | None = None

    def __init__(self, nbytes: int, context: Context | None = None) -> None:
        self._memory = Memory(chosen(context), integer("nbytes", nbytes, 0))

    @classmethod
    def wrap(cls, source: Any, context: Context | None = None) -> Buffer:
        """A buffer over the memory of an array, or of any object that exports its bytes; nothing is copied.

        Parameters
        ----------
        source : array or bytes-like
            C-contiguous. It is kept alive. Read-only memory gives read-only views. A GPU takes whole pages only.
        context : Context, optional
            The default context if left out.

        Returns
        -------
        Buffer

        Raises
        ------
        ValueError
            If the memory isn't C-contiguous; on a GPU also if it isn't whole pages (of 16384 bytes on Metal).
        TypeError
            If `source` exports no memory, or Python objects, or is a masked array.

        Examples
        --------
        >>> import numpy as np, tcpy
        >>> x = np.zeros(4, np.float16)
        >>> tcpy.Buffer.wrap(x, tcpy.Context("cpu")).numpy(np.float16)[2] = 7
        >>> x
        array([0., 0., 7., 0.], dtype=float16)
        """
        refuse_mask("source", source)
        try:
            array = source if isinstance(source, np.ndarray) else np.asarray(memoryview(source))
        except (TypeError, ValueError) as error:
            raise type_error(f"source is {shown(source)}, an array or bytes are needed: {error}") from error
        if array.dtype.hasobject:
            raise type_error(f"source is {array.dtype}, memory without Python objects is needed")
        if not array.flags.c_contiguous:
            raise fault(Status.ARGUMENT, "source isn't C-contiguous, which it must be, since its memory is shared")
        buffer = cls.__new__(cls)
        buffer._memory = Memory(chosen(context), array.nbytes, array)
        return buffer

    @property
    def _live(self) -> Memory:
        if self._memory is None:
            raise fault(Status.CLOSED, "the buffer is closed")
        return self._memory

    @property
    def context(self) -> Context:
        """The context it belongs to."""
        return self._live.context

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self._live.nbytes

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._memory is None

    def close(self) -> None:
        """Let go of the memory, which goes with the last view of it. A second call does nothing.

        Examples
        --------
        >>> import tcpy
        >>> with tcpy.Buffer(8) as buffer:
        ...     view = buffer.numpy()
        >>> buffer.closed, view.size
        (True, 8)
        """
        self._memory = None

    def numpy(self, dtype: DTypeLike = np.uint8, shape: int | Sequence[int] | None = None) -> Array:
        """The memory as an array, without a copy.

        Parameters
        ----------
        dtype : dtype
            Bytes if left out. Not one of Python objects, or of elements without bytes.
        shape : int or sequence of int, optional
            All that fits in one dimension if left out. It may take less than the buffer holds.

        Returns
        -------
        ndarray
            A view, writeable unless the buffer wraps read-only memory.

        Raises
        ------
        ValueError
            If the buffer holds fewer bytes than the shape needs, or, without a shape, a part of an element.
        TypeError
            For a dtype of Python objects.
        RuntimeError
            If the buffer is closed.

        Examples
        --------
        >>> import numpy as np, tcpy
        >>> tcpy.Buffer(8).numpy(np.float16, (2, 2))
        array([[0., 0.],
               [0., 0.]], dtype=float16)
        """
        element, data = plain_dtype("dtype", dtype), np.asarray(self._live)
        if shape is None and data.nbytes % element.itemsize:
            whole = f"a multiple of {element.itemsize} is needed for dtype {element}"
            raise fault(Status.BUFFER, f"the buffer holds {data.nbytes} bytes, {whole}")
        sizes = (data.nbytes // element.itemsize,) if shape is None else shape_of(shape)
        needed = math.prod(sizes) * element.itemsize
        if needed > data.nbytes:
            what = f"shape {shown(sizes)} of dtype {element} needs {shown(needed)}"
            raise fault(Status.BUFFER, f"the buffer holds {data.nbytes} bytes, {what}")
        return new_array("a view", sizes, element, data)

    def memoryview(self) -> memoryview:
        r"""The memory as a `memoryview` of bytes, without a copy.

        Returns
        -------
        memoryview
            Writeable unless the buffer wraps read-only memory.

        Raises
        ------
        RuntimeError
            If the buffer is closed.

        Examples
        --------
        >>> import tcpy
        >>> view = tcpy.Buffer(4).memoryview()
        >>> view[0] = 255
        >>> bytes(view)
        b'\xff\x00\x00\x00'
        """
        return self.numpy().data

    @property
    def __array_interface__(self) -> dict[str, Any]:
        # Whoever reads the address holds on to this object: from now on it holds the memory, closed or not.
        self._lent = self._live
        return self._lent.__array_interface__

    def __dlpack__(self, **how: Any) -> Any:
        return self.numpy().__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.numpy().__dlpack_device__()

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Buffer belongs to its process: it can't be copied or pickled")

    def __repr__(self) -> str:
        return "<tcpy.Buffer closed>" if self.closed else f"<tcpy.Buffer of {self.nbytes} bytes>"


def empty(shape: int | Sequence[int], dtype: DTypeLike = np.float16, context: Context | None = None) -> Array:
    """A new array in a buffer of the library: the operand that calls take without any preparation.

    Parameters
    ----------
    shape : int or sequence of int
    dtype : dtype
        float16 if left out.
    context : Context, optional
        The context whose calls will use it; the default context if left out.

    Returns
    -------
    ndarray
        Aligned to 64 bytes at least. For now it holds zeros.

    Raises
    ------
    ValueError
        For a negative size, one beyond 64 bits, or a dtype of elements without bytes.
    TypeError
        For a dtype of Python objects.
    MemoryError
        If there is not enough memory.

    Examples
    --------
    >>> import tcpy
    >>> tcpy.empty((2, 3)).shape
    (2, 3)
    """
    sizes, element = shape_of(shape), plain_dtype("dtype", dtype)
    nbytes = math.prod(sizes) * element.itemsize
    if nbytes >= 2**63:
        raise shape_error(f"shape is {shown(sizes)}: {shown(nbytes)} bytes of dtype {element}, under 2**63 are needed")
    return Buffer(nbytes, context).numpy(element, sizes)
