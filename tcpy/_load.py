"""Finds libtc, checks that it speaks this package's API, and types its functions."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.resources
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from . import _abi
from .errors import tc_error

_SUFFIX = "dylib" if sys.platform == "darwin" else "so"
_FILE = f"libtc.{_SUFFIX}"
_SYSTEM = f"libtc.{_abi.API_VERSION}.dylib" if sys.platform == "darwin" else f"libtc.so.{_abi.API_VERSION}"


def _candidates() -> Iterator[str]:
    """Where to look, in order. TC_LIBRARY is an order, not a hint: nothing else is tried then."""
    if path := os.environ.get("TC_LIBRARY"):
        yield path
        return
    yield str(importlib.resources.files(__package__).joinpath(_FILE))
    with suppress(importlib.metadata.PackageNotFoundError):
        # the library of an installed tcpy, where a source checkout stands in front of it
        yield str(importlib.metadata.distribution("tcpy").locate_file(f"tcpy/{_FILE}"))
    yield _SYSTEM


def text(given: bytes) -> str:
    """What the library says. It may quote bytes that are no UTF-8, or cut a character in two."""
    return given.decode(errors="replace")


def _checker(library: ctypes.CDLL, result: _abi.Result) -> Callable[[int, Any, Any], int]:
    def check_status(value: int, function: Any, arguments: Any) -> int:
        if value:
            raise tc_error(_abi.Status(value), text(library.tc_last_error()))
        return value

    def check_size(value: int, function: Any, arguments: Any) -> int:
        if value == result.failure:
            raise tc_error(_abi.Status.SHAPE, text(library.tc_last_error()))
        return value

    return check_status if result.is_status else check_size


def _bind(library: ctypes.CDLL) -> None:
    for name, (result, arguments) in _abi.SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result.ctype, arguments
        if result.is_status or result.failure is not None:
            function.errcheck = _checker(library, result)


def _open(path: str) -> ctypes.CDLL:
    library = ctypes.CDLL(path)
    if (api := library.tc_api_version()) != _abi.API_VERSION:
        raise OSError(f"its API number is {api}, this tcpy needs {_abi.API_VERSION}")
    _bind(library)
    return library


def _load() -> tuple[ctypes.CDLL, str]:
    tried = []
    for path in dict.fromkeys(_candidates()):
        try:
            return _open(path), path
        except (OSError, AttributeError) as error:  # AttributeError: a library without our functions
            tried.append(f"  {path}: {error}")
    raise ImportError("tcpy can't load the libtc library. Tried:\n" + "\n".join(tried))


lib, path = _load()
