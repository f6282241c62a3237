"""Operands of a call as library buffers: over the caller's memory, or copies where a GPU can't share it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np

from ._abi import Status
from ._arguments import Array, address_of, fault
from .buffer import Memory, memory_of
from .context import Context, Held
from .errors import TcError


class Operand(NamedTuple):
    """An array, or None, and how many bytes from its start on a call may touch. Outputs and scratch are contiguous."""

    name: str
    array: Array | None
    nbytes: int
    role: Literal["input", "output", "scratch"] = "input"

    @property
    def begin(self) -> int:
        return 0 if self.array is None else self.array.ctypes.data

    def refuse_misalignment(self) -> None:
        """As the library does where it sees the array itself."""
        assert self.array is not None
        alignment = 4 if self.role == "scratch" else self.array.itemsize
        if self.begin % alignment:
            sentence = f"{self.name} starts at address {self.begin:#x}, a multiple of {alignment} is needed"
            raise fault(Status.ALIGNMENT, sentence)


class Copy:
    """An operand's copy in memory of the library."""

    def __init__(self, context: Context, operand: Operand) -> None:
        array = operand.array
        assert array is not None
        self.role, self.memory = operand.role, Memory(context, operand.nbytes)
        elements, size = operand.nbytes // array.itemsize, array.itemsize
        self.theirs = np.lib.stride_tricks.as_strided(array, (elements,), (size,), writeable=self.role != "input")
        self.ours = np.asarray(self.memory).view(array.dtype)
        if os.environ.get("TC_VERBOSE") == "1":
            why = "the GPU shares whole pages only, as tcpy.empty() makes them"
            print(f"tcpy: {operand.name} is copied, {operand.nbytes} bytes: {why}", file=sys.stderr)


class Operands:
    """Buffers for a call's operands, and the copies among them."""

    def __init__(self, context: Context, operands: Sequence[Operand], held: list[Held]) -> None:
        self.context, self.copies = context, list[Copy]()
        self.handles = [self._handle(operand, held) for operand in operands]
        if self.copies:
            _refuse_overlaps(operands)  # the library doesn't see those of the originals
            context._settle()  # calls of a batch may still have to write what is copied now
            for copy in self.copies:
                if copy.role != "scratch":
                    copy.ours[...] = copy.theirs

    def _handle(self, operand: Operand, held: list[Held]) -> int | None:
        array = operand.array
        if array is None:
            return None
        memory = memory_of(array)
        if memory is None or memory.context is not self.context:
            try:
                buffer = self.context._wrap(address_of(array), operand.nbytes)
            except TcError as error:
                if error.status is not Status.ALIGNMENT:
                    raise
                operand.refuse_misalignment()
                self.copies.append(Copy(self.context, operand))
                memory = self.copies[-1].memory
            else:
                held.append((buffer, array))
                return buffer
        held.append((None, memory))
        return memory.handle

    def finish(self) -> None:
        """After the call: copy outputs back."""
        outputs = [copy for copy in self.copies if copy.role == "output"]
        if outputs:
            self.context._settle()
        for copy in outputs:
            copy.theirs[...] = copy.ours


def _refuse_overlaps(operands: Sequence[Operand]) -> None:
    for one, other in combinations(operands, 2):
        written = one.role != "input" or other.role != "input"
        if written and one.begin < other.begin + other.nbytes and other.begin < one.begin + one.nbytes:
            raise fault(Status.OVERLAP, f"{one.name} overlaps {other.name}")
