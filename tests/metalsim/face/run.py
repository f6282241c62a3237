# SPDX-License-Identifier: MIT
"""Runs kernels of the MSL face on NumPy arrays, or anything else with the buffer protocol.

    from run import Face
    face = Face("build/tests/metalsim/face/libmetalface.so")
    library = face.library(open("scale.metal").read())
    counters = library.run("scale", {0: x, 1: y}, threadgroups=(4, 1, 1), threads=(64, 1, 1))

Arrays are written in place; bytes may stand for constant data. As a program it compiles a file and
lists its kernels: `python run.py LIBRARY FILE`.
"""

from __future__ import annotations

import ctypes as c
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TYPES = ("bool", "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "half", "float")
FORMATS = "?bBhHiIqQef"


class Argument(c.Structure):
    _fields_ = (
        ("name", c.c_char_p),
        ("space", c.c_int),
        ("index", c.c_uint32),
        ("writable", c.c_bool),
        ("reference", c.c_bool),
        ("size", c.c_size_t),
        ("alignment", c.c_size_t),
    )


class Constant(c.Structure):
    _fields_ = (("name", c.c_char_p), ("index", c.c_uint32), ("type", c.c_int), ("required", c.c_bool))


class Kernel(c.Structure):
    _fields_ = (
        ("name", c.c_char_p),
        ("arguments", c.POINTER(Argument)),
        ("argument_count", c.c_size_t),
        ("constants", c.POINTER(Constant)),
        ("constant_count", c.c_size_t),
        ("max_total_threads", c.c_uint32),
    )


class Value(c.Structure):
    _fields_ = (("index", c.c_uint32), ("type", c.c_int), ("bits", c.c_uint64))


class Binding(c.Structure):
    _fields_ = (("pointer", c.c_void_p), ("length", c.c_size_t))


class Dispatch(c.Structure):
    _fields_ = (
        ("function", c.c_void_p),
        ("buffers", Binding * 31),
        ("threadgroup_lengths", c.c_size_t * 31),
        ("threadgroups", c.c_uint32 * 3),
        ("threads", c.c_uint32 * 3),
    )


COUNTERS = (
    "device_read",
    "device_written",
    "threadgroup_read",
    "threadgroup_written",
    "constant_read",
    "device_accesses",
    "threadgroup_accesses",
    "matrix_moves",
    "multiply_accumulates",
    "threadgroup_barriers",
    "simdgroup_barriers",
    "threadgroups",
)


class Counters(c.Structure):
    _fields_ = tuple((name, c.c_uint64) for name in COUNTERS)


class FaceError(Exception):
    """What the compiler says, or what a kernel did wrong."""


class Face:
    """The face's library."""

    def __init__(self, path: str | Path) -> None:
        self.api = api = c.CDLL(str(path))
        error = c.POINTER(c.c_void_p)
        signatures: dict[str, tuple[Any, list[Any]]] = {
            "face_library_new": (c.c_void_p, [c.c_char_p, c.c_size_t, c.c_int, error]),
            "face_library_free": (None, [c.c_void_p]),
            "face_library_kernel_count": (c.c_size_t, [c.c_void_p]),
            "face_library_kernel": (c.POINTER(Kernel), [c.c_void_p, c.c_size_t]),
            "face_function_new": (c.c_void_p, [c.c_void_p, c.c_char_p, c.POINTER(Value), c.c_size_t, error]),
            "face_function_free": (None, [c.c_void_p]),
            "face_function_threadgroup_bytes": (c.c_size_t, [c.c_void_p]),
            "face_dispatch": (c.c_bool, [c.POINTER(Dispatch), c.POINTER(Counters), error]),
        }
        for name, (result, arguments) in signatures.items():
            function = getattr(api, name)
            function.restype, function.argtypes = result, arguments

    def checked(self, name: str, *arguments: Any) -> Any:
        """Calls a function whose last argument is the error; raises FaceError where it fails."""
        error = c.c_void_p()
        result = getattr(self.api, name)(*arguments, c.byref(error))
        if not result:
            assert error.value is not None
            raise FaceError(c.string_at(error.value).decode())
        return result

    def library(self, source: str | bytes, version: int = 300) -> Library:
        text = source.encode() if isinstance(source, str) else source
        return Library(self, self.checked("face_library_new", text, len(text), version))


class Library:
    """A compiled source."""

    def __init__(self, face: Face, handle: int) -> None:
        self.face, self.handle = face, handle

    def kernels(self) -> list[Kernel]:
        api = self.face.api
        return [
            api.face_library_kernel(self.handle, i).contents for i in range(api.face_library_kernel_count(self.handle))
        ]

    def run(
        self,
        kernel: str,
        buffers: Mapping[int, Any],
        threadgroups: Sequence[int],
        threads: Sequence[int],
        constants: Mapping[int, tuple[str, Any]] | None = None,
        threadgroup_lengths: Mapping[int, int] | None = None,
    ) -> dict[str, int]:
        """Dispatches a kernel once; returns the counters."""
        values = [
            Value(
                index, TYPES.index(kind), int.from_bytes(struct.pack("<" + FORMATS[TYPES.index(kind)], value), "little")
            )
            for index, (kind, value) in (constants or {}).items()
        ]
        function = self.face.checked(
            "face_function_new", self.handle, kernel.encode(), (Value * len(values))(*values), len(values)
        )
        try:
            dispatch = Dispatch(function=function)
            keep = [self._bind(dispatch, index, data) for index, data in buffers.items()]
            for index, length in (threadgroup_lengths or {}).items():
                dispatch.threadgroup_lengths[index] = length
            dispatch.threadgroups[:], dispatch.threads[:] = tuple(threadgroups), tuple(threads)
            counters = Counters()
            self.face.checked("face_dispatch", c.byref(dispatch), c.byref(counters))
            del keep
            return {name: getattr(counters, name) for name in COUNTERS}
        finally:
            self.face.api.face_function_free(function)

    @staticmethod
    def _bind(dispatch: Dispatch, index: int, data: Any) -> Any:
        """Binds the memory of an array; returns what must stay alive."""
        view = memoryview(data)
        if view.readonly:  # bytes
            view = memoryview(bytearray(view))
        assert view.c_contiguous
        memory = (c.c_char * view.nbytes).from_buffer(view)
        dispatch.buffers[index] = Binding(c.addressof(memory), view.nbytes)
        return memory


def main(library: str, source: str) -> None:
    for kernel in Face(library).library(Path(source).read_bytes()).kernels():
        names = [kernel.arguments[i].name.decode() for i in range(kernel.argument_count)]
        constants = [kernel.constants[i].name.decode() for i in range(kernel.constant_count)]
        print(kernel.name.decode(), "arguments:", *names, "constants:", *constants)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except FaceError as error:
        sys.exit(str(error))
