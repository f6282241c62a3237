# SPDX-License-Identifier: MIT
"""What counts take on an Apple GPU, on paper. metal/README.md has the assumptions and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LANES = 32
SCHEDULERS = 4  # of a core: simdgroups that issue at once; 128 lanes
LINE = 128  # bytes
THREADGROUP_BYTES = 64  # of threadgroup memory, for each core and cycle

# Cycles of a simdgroup's scheduler.
MULTIPLY = 18  # an 8x8x8 product
COSTS = {
    "matrix_moves": 3,  # simdgroup_load and simdgroup_store: two elements for each lane, and an address
    "device_accesses": 5 / LANES,  # an instruction and a sum of 64 bits
    "threadgroup_accesses": 2 / LANES,  # an instruction and a sum of 32 bits
    "simdgroup_barriers": 1,
}
BARRIER = 10  # a threadgroup's, for each simdgroup; half a turn of the loop over K


@dataclass(frozen=True)
class Chip:
    name: str
    letter: str  # the last one of the architecture's name, by which MLX takes tiles
    cores: int
    gigahertz: float
    gigabytes: float  # a second

    @property
    def cycles(self) -> float:
        """Of all cores, in a second."""
        return self.cores * self.gigahertz * 1e9

    @property
    def peak(self) -> float:
        """Products a second."""
        return self.cycles * SCHEDULERS * LANES


@dataclass(frozen=True)
class Bound:
    """Seconds by what limits them."""

    issue: float
    threadgroup: float
    cached: float  # device memory: each operand moves once
    uncached: float  # each tile reads its own operands

    @property
    def name(self) -> str:
        """What limits; "ALU*": device memory would, if threadgroups shared nothing in a cache."""
        worst = max(self.issue, self.threadgroup, self.cached)
        if worst == self.cached:
            return "device"
        if worst == self.threadgroup:
            return "threadgroup"
        return "ALU*" if self.uncached > worst else "ALU"

    @property
    def seconds(self) -> float:
        return max(self.issue, self.threadgroup, self.cached)


def multiply_cycles(counters: Mapping[str, int]) -> float:
    """Of all simdgroups together."""
    return MULTIPLY * counters["multiply_accumulates"]


def issue_cycles(counters: Mapping[str, int], threads: int) -> float:
    """Of all simdgroups together, for all instructions."""
    rest = sum(cost * counters[name] for name, cost in COSTS.items())
    return multiply_cycles(counters) + rest + BARRIER * counters["threadgroup_barriers"] * threads / LANES


def device_bytes(counters: Mapping[str, int]) -> int:
    return counters["device_read"] + counters["device_written"]


def threadgroup_bytes(counters: Mapping[str, int]) -> int:
    return counters["threadgroup_read"] + counters["threadgroup_written"]


def whole_lines(size: int) -> int:
    return -(-size // LINE) * LINE


def bound(chip: Chip, cycles: float, threadgroup: int, once: int, device: int) -> Bound:
    """once: bytes if each operand moves once; device: those that were counted."""
    rate = chip.gigabytes * 1e9
    return Bound(
        cycles / SCHEDULERS / chip.cycles, threadgroup / THREADGROUP_BYTES / chip.cycles, once / rate, device / rate
    )
