"""Rows of the result: one case and operation, checked and then measured beside its peers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ..context import Context
from .measure import Entry, Ratio, ratio, take_turns, warm_up
from .overhead import ways
from .peers import Peer, Variant
from .problems import Call, Operands, Sampled, operands, our_call, sample
from .suites import Case
from .yardstick import Yardstick

TOO_LONG = 10  # budgets that one call may take: one that would take longer isn't begun


@dataclass
class Row:
    case: Case
    op: str
    excess: float  # error as a multiple of what is allowed; there are no times where it is over 1
    ours: Entry
    yardstick: Entry
    yardstick_flops: int
    ways: dict[str, Entry] = field(default_factory=dict)  # other ways of calling
    peers: dict[str, dict[str, Entry]] = field(default_factory=dict)  # by name and layout
    missing: dict[str, str] = field(default_factory=dict)  # why a peer's layout has no time

    @property
    def right(self) -> bool:
        return self.excess <= 1

    def gflops(self, entry: Entry) -> float:
        return self.case.flops / entry.median / 1e9

    @property
    def of_yardstick(self) -> float:
        """Our rate as a multiple of the yardstick's beside it."""
        return self.gflops(self.ours) / (self.yardstick_flops / self.yardstick.median / 1e9)

    def entries(self) -> Iterator[Entry]:
        """All that was timed."""
        yield from (self.ours, self.yardstick, *self.ways.values())
        for layouts in self.peers.values():
            yield from layouts.values()

    def faster(self, peer: str) -> Entry | None:
        """The peer in its faster layout."""
        return min(self.peers.get(peer, {}).values(), key=lambda entry: entry.median, default=None)

    def ratio(self, peer: str) -> Ratio | None:
        entry = self.faster(peer)
        return ratio(self.ours, entry) if entry else None

    @property
    def fastest_peer(self) -> str | None:
        medians = {peer: entry.median for peer in self.peers if (entry := self.faster(peer))}
        return min(medians, key=lambda peer: medians[peer], default=None)


@dataclass(frozen=True)
class Settings:
    rounds: int  # with clean samples of ours
    most_rounds: int
    budget: float  # seconds for one layout of one peer in one row
    data_sets: int  # of random operands, which the rounds take in turn


@dataclass
class Bench:
    """How to measure, and what is known by now."""

    context: Context
    peers: Sequence[Peer]
    yardstick: Yardstick
    settings: Settings
    with_ways: bool
    rng: np.random.Generator = field(default_factory=np.random.default_rng)
    rates: dict[tuple[str, str, str], float] = field(default_factory=dict)  # best FLOP/s by peer, layout, operation

    def rows(self, work: Sequence[tuple[Case, str]]) -> Iterator[Row]:
        last = None
        for case, op in work:
            if case != last:
                data, last = [operands(case, self.rng) for _ in range(self.settings.data_sets)], case
            yield self._row(case, op, data)

    def _row(self, case: Case, op: str, data: list[Operands]) -> Row:
        exact = sample(case, op, data[0], self.rng)
        ours = Entry("tcpy", _calls(partial(our_call, self.context), case, op, data))
        row = Row(case, op, exact.excess(warm_up(ours)), ours, self.yardstick.entry(), self.yardstick.flops)
        if row.right:
            self._measure(row, data, exact)
        return row

    def _measure(self, row: Row, data: list[Operands], exact: Sampled) -> None:
        if self.with_ways:
            row.ways = {name: Entry("tcpy", _calls(way, row.case, row.op, data)) for name, way in ways(self.context)}
        for entry in (row.yardstick, *row.ways.values()):
            warm_up(entry)
        for variant in (variant for peer in self.peers for variant in peer.variants(row.case)):
            self._add(row, variant, data, exact)
        others = [entry for entry in row.entries() if entry is not row.ours]
        take_turns(row.ours, others, self.settings.rounds, self.settings.most_rounds)
        for peer, layouts in row.peers.items():
            for layout, entry in layouts.items():
                key = peer, layout, row.op
                self.rates[key] = max(self.rates.get(key, 0), row.case.flops / entry.median)

    def _add(self, row: Row, variant: Variant, data: list[Operands], exact: Sampled) -> None:
        """Warm up a peer in one layout and enter it into the row, or say why not."""
        seconds = row.case.flops / self.rates.get((variant.peer, variant.layout, row.op), np.inf)
        if seconds > TOO_LONG * self.settings.budget:
            row.missing[variant.name] = f"not begun: a call takes {seconds:.0f} s at its best rate so far"
            return
        try:
            calls = _calls(variant.prepare, row.case, row.op, data)
            entry = Entry(variant.runtime, calls, self.settings.budget)
            result = variant.to_numpy(row.case, warm_up(entry))
        except Exception as error:  # whatever another library raises where it can't do a case
            row.missing[variant.name] = f"{type(error).__name__}: {error}".splitlines()[0]
            return
        if exact.coarse(result):
            row.peers.setdefault(variant.peer, {})[variant.layout] = entry
        else:
            row.missing[variant.name] = "its result is wrong"


def _calls(prepare: Callable[[Case, str, Operands], Call], case: Case, op: str, data: list[Operands]) -> list[Call]:
    return [prepare(case, op, operands) for operands in data]
