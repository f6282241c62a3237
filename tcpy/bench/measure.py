"""Timing. Entries take turns in rounds, so that each of them meets the machine in the same states."""

from __future__ import annotations

import ctypes
import gc
import math
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from .problems import Call

SAMPLE_SECONDS = 2e-3  # a sample takes at least as long, by calling again
# How long a call is made untimed before each sample, unless it takes as long itself: its memory was cold and its
# threads asleep, and Linux often wakes them on one CPU and needs milliseconds to spread them.
WAKE_SECONDS = 12e-3
FIRST_CALL_SECONDS = 0.5  # a first call that takes longer isn't repeated only to warm up
SETTLE_SECONDS, SETTLE_STEPS = 2e-3, 100  # how long to wait for another library's threads, and how often
# Involuntary context switches in a second that a free machine makes too, for moments. The time of an entry's fastest
# sample says how many all may have: none where that is under 20 ms.
HARMLESS_SWITCHES = 50

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's malloc.h


def keep_freed_memory() -> bool:
    """Make the C library's allocator keep what is freed; whether it does.

    Otherwise large results come from fresh pages of the kernel's or not, as glibc's thresholds happen to stand, and
    those pages can take as long as the whole convolution: a fault of no library that is measured here.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return bool(mallopt and mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, -1))


class Sample(NamedTuple):
    seconds: float  # of one call
    switches: int  # how often a thread of this process had to make way


@dataclass
class Entry:
    """Something that is timed: a call for each set of operands, and its samples by round."""

    runtime: str  # whose threads run it
    calls: Sequence[Call]
    budget: float = math.inf  # seconds; beyond them it sits out the remaining rounds
    repeats: int = 1  # calls of one sample
    sleepy: bool = True  # to be called untimed before each sample
    spent: float = 0.0
    samples: dict[int, Sample] = field(default_factory=dict)

    @property
    def clean(self) -> dict[int, Sample]:
        """The samples that no other process disturbed."""
        fastest = min((sample.seconds for sample in self.samples.values()), default=0.0)
        allowed = HARMLESS_SWITCHES * self.repeats * fastest
        return {number: sample for number, sample in self.samples.items() if sample.switches <= allowed}

    @property
    def noisy(self) -> bool:
        """Whether there are none, so that all count."""
        return not self.clean

    @property
    def dropped(self) -> int:
        return 0 if self.noisy else len(self.samples) - len(self.clean)

    @property
    def median(self) -> float:
        """Seconds of a call."""
        return float(np.median([sample.seconds for sample in (self.clean or self.samples).values()]))


class Ratio(NamedTuple):
    """How many times longer another entry takes, round by round: quartiles over `rounds` of them."""

    low: float
    median: float
    high: float
    rounds: int
    noisy: bool  # no round has clean samples of both, so that all count


def ratio(ours: Entry, other: Entry) -> Ratio:
    clean = ours.clean.keys() & other.clean.keys()
    rounds = clean or other.samples.keys()
    quotients = [other.samples[number].seconds / ours.samples[number].seconds for number in rounds]
    low, median, high = np.percentile(quotients, [25, 50, 75])
    return Ratio(float(low), float(median), float(high), len(quotients), not clean)


def _switches() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def time_calls(call: Call, count: int) -> Sample:
    switches, start = _switches(), time.perf_counter()
    for _ in repeat(None, count):
        call()
    seconds = time.perf_counter() - start
    return Sample(seconds / count, _switches() - switches)


def warm_up(entry: Entry) -> Any:
    """Call it for the first time; the result. Where one call is over the budget, that is the only sample."""
    results: list[Any] = []
    sample = time_calls(lambda: results.append(entry.calls[0]()), 1)
    if sample.seconds < FIRST_CALL_SECONDS:
        sample = time_calls(entry.calls[0], 1)
    entry.sleepy = sample.seconds < WAKE_SECONDS
    if sample.seconds >= entry.budget:
        entry.samples[0], entry.spent = sample, sample.seconds
    while entry.repeats * sample.seconds < SAMPLE_SECONDS:
        entry.repeats *= 2
        sample = time_calls(entry.calls[0], entry.repeats)
    return results[0]


def _settle() -> None:
    """Wait until this process is idle: OpenMP's threads spin for milliseconds after a call, in others' way."""
    for _ in range(SETTLE_STEPS):
        before = time.process_time()
        time.sleep(SETTLE_SECONDS)
        if time.process_time() - before < SETTLE_SECONDS / 2:
            return


def _take(entry: Entry, number: int) -> None:
    call, start = entry.calls[number % len(entry.calls)], time.perf_counter()
    while entry.sleepy and time.perf_counter() - start < WAKE_SECONDS:
        call()
    entry.samples[number] = time_calls(call, entry.repeats)
    entry.spent += time.perf_counter() - start


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def take_turns(ours: Entry, others: Sequence[Entry], rounds: int, most: int) -> None:
    """Sample all entries in turn, until `rounds` samples of ours are clean, or `most` were taken."""
    runtime = ""
    with _no_garbage_collection():
        for number in range(most):
            if len(ours.clean) >= rounds:
                break
            for entry in (ours, *others):
                if entry.spent >= entry.budget:
                    continue
                if entry.runtime != runtime:
                    _settle()
                    runtime = entry.runtime
                _take(entry, number)
