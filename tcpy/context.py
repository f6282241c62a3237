"""Contexts: a backend with its threads."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ctypes import byref, c_int64, c_void_p, sizeof
from typing import NoReturn, TypeAlias, TypedDict

from ._abi import Backend, DeviceInfo, Status
from ._arguments import fault, integer, shown, type_error
from ._load import lib, text

__all__ = ["Context", "ContextInfo", "default_context"]


# What a running call holds on to: the library buffer made for it, if any, and the object whose memory it uses.
Held: TypeAlias = tuple[int | None, object]


def at_end(owner: object, function: Callable[..., object], *arguments: object) -> weakref.finalize[..., object]:
    """Call the function when the owner goes, but not at the exit of the process: arrays over its memory still live."""
    finalizer = weakref.finalize(owner, function, *arguments)
    finalizer.atexit = False
    return finalizer


class ContextInfo(TypedDict):
    """What `Context.info` returns: the C struct ``tc_device_info``, `isas` being a list.

    Examples
    --------
    >>> import tcpy
    >>> sorted(tcpy.default_context().info())
    ['backend', 'device', 'isa', 'isa_reason', 'isas', 'kernel', 'threads']
    """

    backend: str
    device: str
    isa: str
    isa_reason: str
    isas: list[str]
    kernel: str
    threads: int


class Context:
    """One backend with its threads and workspaces.

    May be used from several threads at once, and in a forked child. Close it, or use it in a ``with`` statement, or
    leave it to the garbage collector. Buffers outlive the context that made them.

    Parameters
    ----------
    backend : {'auto', 'cpu', 'metal'}
        'auto' takes the best one that works here, or what the environment variable ``TC_BACKEND`` says.
    threads : int, optional
        How many threads a call may use; by default one for each CPU that the process may use.

    Raises
    ------
    ValueError
        For another backend, a thread count outside 1..1024, or a ``TC_*`` environment variable with a wrong value.
    NotImplementedError
        For a backend that isn't built into this library.

    Examples
    --------
    >>> import numpy as np, tcpy
    >>> with tcpy.Context("cpu", threads=1) as context:
    ...     print(tcpy.gemm(np.eye(2, dtype=np.float16), np.ones((2, 2), np.float16), context=context))
    [[1. 1.]
     [1. 1.]]
    """

    # What __init__ hasn't got to yet: a context that can't be made is a closed one.
    _handle: int | None = None
    _close: weakref.finalize[..., object] | None = None
    _batch: list[Held] | None = None

    def __init__(self, backend: str = "auto", *, threads: int | None = None) -> None:
        names = [known.name.lower() for known in Backend]
        if not isinstance(backend, str) or backend not in names:
            raise fault(Status.ARGUMENT, f"backend is {shown(backend)}, one of {names} is needed")
        handle, sentinel = c_void_p(), c_void_p()
        lib.tc_init_backend(Backend[backend.upper()], byref(handle))
        self._handle = handle.value
        self._close = at_end(self, lib.tc_shutdown, self._handle)
        # An empty buffer keeps the handle valid for as long as this object lives: a call on a closed context, even one
        # that another thread is just closing, then gets the library's own error.
        lib.tc_buffer_alloc(self._handle, 0, byref(sentinel))
        at_end(self, lib.tc_buffer_free, self._handle, sentinel.value)
        if threads is not None:
            self.threads = threads

    def close(self) -> None:
        """Wait for running calls, then shut the context down. A second call does nothing.

        Examples
        --------
        >>> import tcpy
        >>> context = tcpy.Context()
        >>> context.close()
        >>> context.closed
        True
        """
        if self._close is not None:
            self._close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._close is None or not self._close.alive

    @property
    def threads(self) -> int:
        """How many threads a call may use, the calling one among them: 1..1024. Results don't depend on it."""
        count = c_int64()
        lib.tc_context_get_threads(self._handle, byref(count))
        return count.value

    @threads.setter
    def threads(self, count: int) -> None:
        lib.tc_context_set_threads(self._handle, integer("threads", count, 1, 1024))

    def info(self) -> ContextInfo:
        """The backend, device and kernels in use.

        Returns
        -------
        ContextInfo
            A dictionary with the keys `backend`, `device`, `isa`, `isa_reason`, `isas`, `kernel` and `threads`.

        Raises
        ------
        RuntimeError
            If the context is closed.

        Examples
        --------
        >>> import tcpy
        >>> tcpy.Context("cpu", threads=2).info()["threads"]
        2
        """
        info = DeviceInfo(struct_size=sizeof(DeviceInfo))
        lib.tc_device_info_get(self._handle, byref(info))
        return {
            "backend": Backend(info.backend).name.lower(),
            "device": text(info.device),
            "isa": text(info.isa),
            "isa_reason": text(info.isa_reason),
            "isas": text(info.isas).split(",") if info.isas else [],
            "kernel": text(info.kernel),
            "threads": info.threads,
        }

    def trim(self) -> None:
        """Free the workspace that the context keeps from call to call.

        Raises
        ------
        RuntimeError
            If the context is closed.

        Examples
        --------
        >>> import tcpy
        >>> tcpy.default_context().trim()
        """
        lib.tc_context_trim(self._handle)

    @contextmanager
    def batch(self) -> Iterator[Context]:
        """Let a GPU run the calls inside without waiting for each: results are there at the end of the block.

        Raises
        ------
        RuntimeError
            If batches are nested or the context is closed.

        Examples
        --------
        >>> import numpy as np, tcpy
        >>> with tcpy.Context() as context, context.batch():
        ...     c = tcpy.gemm(np.ones((1, 2), np.float16), np.ones((2, 1), np.float16), context=context)
        >>> c
        array([[2.]], dtype=float16)
        """
        lib.tc_batch_begin(self._handle)
        held: list[Held] = []
        self._batch = held
        try:
            yield self
        finally:
            try:
                lib.tc_batch_end(self._handle)
            finally:
                self._batch = None
                self._free(held)

    def _settle(self) -> None:
        """Inside a batch: wait for the calls so far, whose results are there then. The batch goes on."""
        if self._batch is not None:
            lib.tc_batch_end(self._handle)
            lib.tc_batch_begin(self._handle)

    def _wrap(self, address: int, nbytes: int) -> int:
        """A library buffer over memory that the caller keeps alive until `_release`."""
        buffer = c_void_p()
        lib.tc_buffer_wrap(self._handle, address, nbytes, byref(buffer))
        assert buffer.value is not None
        return buffer.value

    def _release(self, operands: list[Held]) -> None:
        """Let go of a call's operands; inside a batch, when it ends."""
        batch = self._batch
        if batch is None:
            for wrapped, _ in operands:
                if wrapped:
                    lib.tc_buffer_free(self._handle, wrapped)
            return
        batch.extend(operands)
        if self._batch is not batch:  # another thread ended it meanwhile, and may have looked before
            self._free(batch)

    def _free(self, operands: list[Held]) -> None:
        """Take each one out and free it. Two threads may do so at once: a lock could be held over a fork."""
        with suppress(IndexError):
            while True:
                wrapped, _ = operands.pop()
                if wrapped:
                    lib.tc_buffer_free(self._handle, wrapped)

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Context belongs to its process: it can't be copied or pickled")

    def __repr__(self) -> str:
        return "<tcpy.Context closed>" if self.closed else f"<tcpy.Context {self.info()}>"


_default: Context | None = None
_lock = threading.Lock()
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def default_context() -> Context:
    """The context of calls that are given none: made at first need, one for the process.

    Returns
    -------
    Context
        Always the same one, unless it was closed: then a new one.

    Raises
    ------
    ValueError
        If a ``TC_*`` environment variable has a wrong value.

    Examples
    --------
    >>> import tcpy
    >>> tcpy.default_context() is tcpy.default_context()
    True
    """
    global _default
    context = _default
    if context is None or context.closed:
        with _lock:
            if _default is None or _default.closed:
                _default = Context()
            context = _default
    return context


def chosen(context: Context | None) -> Context:
    """What a call's argument `context` means."""
    if context is None:
        return default_context()
    if not isinstance(context, Context):
        raise type_error(f"context is {shown(context)}, a tcpy.Context is needed")
    if context.closed:
        raise fault(Status.CLOSED, "context is closed")
    return context
