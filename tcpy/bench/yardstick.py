"""What this machine reaches, measured by software on all threads: rates to compare with, not the hardware's peaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from ..context import Context
from .measure import Entry, time_calls, warm_up
from .problems import Call, operands, our_call
from .suites import Gemm

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


def _ours(context: Context, rng: np.random.Generator) -> Iterator[Yardstick]:
    for size in SQUARES:
        case = Gemm(size, size, size)
        yield Yardstick(f"tcpy.gemm {case}", "tcpy", case.flops, our_call(context, case, "gemm", operands(case, rng)))


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
    name = f"numpy.matmul float32 {SMALL}x{SMALL}x{SMALL}, in cache"
    return Yardstick(name, "numpy", flops, _on_all_threads(threads, work))


def _rate(yardstick: Yardstick) -> float:
    entry = yardstick.entry()
    warm_up(entry)
    return yardstick.flops / min(time_calls(yardstick.call, entry.repeats).seconds for _ in range(5))


def choose(context: Context) -> Yardstick:
    """The fastest of a few products of this library and of NumPy's BLAS."""
    rng = np.random.default_rng()
    return max((*_ours(context, rng), _numpy(context.threads, rng)), key=_rate)


def copy_bandwidth(threads: int) -> float:
    """Bytes read and written in a second when all threads copy memory."""
    share = COPY_BYTES // threads
    source, target = np.ones((threads, share), np.uint8), np.zeros((threads, share), np.uint8)
    copy = _on_all_threads(threads, lambda thread: np.copyto(target[thread], source[thread]))
    copy()
    return 2 * threads * share / min(time_calls(copy, 1).seconds for _ in range(5))
