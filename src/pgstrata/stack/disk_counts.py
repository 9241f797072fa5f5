"""What disks that keep account of themselves have done since they were made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pgstrata.stack.step import PlannedCommand
from pgstrata.stack.undo import Undo


@dataclass(frozen=True)
class DiskCounts:
    """The account of one disk; all but the model, its parameters, stretch and timing only grow.

    `queued_s` is the time that requests were under way, summed; `busy_s` and `seek_s` are the medium's own, counted
    when the work begins. `late_percent_counts` says how many answers were late by 0, 1, ... and by 100 or more percent
    of the time that they were to take. `timing` says whether requests take the time of the medium, and `untimed`
    counts those that took none.
    """

    model: str
    parameters: Mapping[str, float]
    stretch: float
    timing: bool
    elapsed_s: float
    reads: int
    writes: int
    zeroes: int
    flushes: int
    errors: int
    read_bytes: int
    written_bytes: int
    queued_s: float
    busy_s: float
    seeks: int
    seek_s: float
    late_percent_counts: tuple[int, ...]
    untimed: int


@dataclass(frozen=True)
class TimingSwitch:
    """How the timing of disks is switched, which take the time of their medium in runs alone."""

    names: tuple[str, ...]
    """That the disks have in their account."""
    on: PlannedCommand
    off: PlannedCommand
    undo: Undo
    """Switches it off when a trial ends early: what is taken down then must not take the time of the medium."""

    def run_on(self, host: str) -> TimingSwitch:
        """The same on another host."""
        return replace(self, on=replace(self.on, host=host), off=replace(self.off, host=host))


@dataclass(frozen=True)
class CountedDisks:
    """Disks by the names that plans give them, the command whose output holds their accounts, and the names that they
    have in it."""

    disks: tuple[str, ...]
    ask: PlannedCommand
    read: Callable[[str], Mapping[str, DiskCounts]]
    names: tuple[str, ...]
    switch: TimingSwitch | None = None
    """None where all of them are timed always."""

    def on(self, host: str) -> CountedDisks:
        """The same on another host; empty leaves them where they are."""
        if not host:
            return self
        switch = self.switch.run_on(host) if self.switch is not None else None
        return replace(self, ask=replace(self.ask, host=host), switch=switch)

    def parse(self, text: str) -> tuple[DiskCounts, ...]:
        """The accounts in the order of the disks; empty when one of them is missing."""
        found = self.read(text)
        return tuple(found[name] for name in self.names) if found.keys() >= set(self.names) else ()
