"""What this machine reaches on all threads, measured beside each row: rates to compare with.

On the CPU that is the ceiling: the kernel of the ISA in use alone, out of first-level caches. The clocks of matrix
units drop some 0.1 ms after their use begins, so a run takes milliseconds.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from .. import _load
from ..context import Context
from .measure import Entry, time_calls, warm_up
from .problems import Call, operands, our_call
from .suites import Gemm

CEILING_SECONDS = 5e-3
SQUARES = (512, 1024, 2048)
SMALL, STACK, STACKS = 64, 32, 30
COPY_BYTES = 2**28


@dataclass(frozen=True)
class Yardstick:
    """A product whose rate the rows are compared with."""

    name: str
    runtime: str
    flops: int
    call: Call

    def entry(self) -> Entry:
        return Entry(self.runtime, [self.call])


def _ceiling_library() -> ctypes.CDLL | None:
    """tc_ceiling, which stands beside the library; not beside one from elsewhere."""
    try:
        library = ctypes.CDLL(str(Path(_load.path).with_name("tc_ceiling.so")))
    except OSError:
        return None
    library.tc_ceiling_flops.restype = ctypes.c_double
    library.tc_ceiling_run.argtypes = [ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64]
    return library


def ceiling(context: Context) -> Yardstick | None:
    """The kernel of the context's ISA, called as often as takes some milliseconds."""
    info, threads, library = context.info(), context.threads, _ceiling_library()
    isa = info["isa"].encode()
    flops = library.tc_ceiling_flops(isa) if library else 0
    if not library or not flops:
        return None

    def run(calls: int) -> None:
        if library.tc_ceiling_run(isa, threads, calls):
            raise MemoryError(f"the ceiling needs {threads} threads")

    calls = 1
    while min(time_calls(partial(run, calls), 1).seconds for _ in range(5)) < CEILING_SECONDS:
        calls *= 2
    name = f"the ceiling: {info['kernel']} alone, out of first-level caches"
    return Yardstick(name, "tcpy", int(flops) * threads * calls, partial(run, calls))


def _ours(context: Context, rng: np.random.Generator) -> Iterator[Yardstick]:
    for size in SQUARES:
        case = Gemm(size, size, size)
        name = f"tcpy.gemm {case}, the fastest of a few products"
        yield Yardstick(name, "tcpy", case.flops, our_call(context, case, "gemm", operands(case, rng)))


def _on_all_threads(threads: int, function: Callable[[int], object]) -> Call:
    pool = ThreadPoolExecutor(threads)
    return lambda: list(pool.map(function, range(threads)))


def _numpy(threads: int, rng: np.random.Generator) -> Yardstick:
    """Small float32 products, each within one core's cache and too small for its BLAS to share out."""
    shape = (threads, STACK, SMALL, SMALL)
    a, b = (rng.standard_normal(shape, np.float32) for _ in range(2))
    out = np.empty(shape, np.float32)

    def work(thread: int) -> None:
        for _ in range(STACKS):
            np.matmul(a[thread], b[thread], out=out[thread])

    flops = threads * STACKS * STACK * 2 * SMALL**3
    name = f"numpy.matmul float32 {SMALL}x{SMALL}x{SMALL} in cache, the fastest of a few products"
    return Yardstick(name, "numpy", flops, _on_all_threads(threads, work))


def _rate(yardstick: Yardstick) -> float:
    entry = yardstick.entry()
    warm_up(entry)
    return yardstick.flops / min(time_calls(yardstick.call, entry.repeats).seconds for _ in range(5))


def choose(context: Context) -> Yardstick:
    """The ceiling, or where nothing measures it the fastest of a few products of this library and of NumPy's BLAS."""
    if found := ceiling(context):
        return found
    rng = np.random.default_rng()
    return max((*_ours(context, rng), _numpy(context.threads, rng)), key=_rate)


def copy_bandwidth(threads: int) -> float:
    """Bytes read and written in a second when all threads copy memory."""
    share = COPY_BYTES // threads
    source, target = np.ones((threads, share), np.uint8), np.zeros((threads, share), np.uint8)
    copy = _on_all_threads(threads, lambda thread: np.copyto(target[thread], source[thread]))
    copy()
    return 2 * threads * share / min(time_calls(copy, 1).seconds for _ in range(5))
