"""Counts since creation of disks that report their own statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pgstrata.stack.step import PlannedCommand
from pgstrata.stack.undo import Undo


@dataclass(frozen=True)
class DiskCounts:
    """Statistics of one disk; all but the model, its parameters, stretch and timing only grow.

    `queued_s` is the summed time that requests were under way. `busy_s` and `seek_s` are the medium's own, counted when
    the work starts. `late_percent_counts` counts the answers late by 0, 1, ... and by 100 or more percent of their
    intended time. `timing` says whether requests take the time of the medium; `untimed` counts those that took none.
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
    """Switches the timing of disks that take the time of their medium only during runs."""

    names: tuple[str, ...]
    """Names of the disks in their statistics."""
    on: PlannedCommand
    off: PlannedCommand
    undo: Undo
    """Turns timing off when a trial ends early, so that teardown does not take the time of the medium."""

    def run_on(self, host: str) -> TimingSwitch:
        """Return the same switch for another host."""
        return replace(self, on=replace(self.on, host=host), off=replace(self.off, host=host))


@dataclass(frozen=True)
class CountedDisks:
    """Disks by their names in plans, the command that prints their statistics, and their names in its output."""

    disks: tuple[str, ...]
    ask: PlannedCommand
    read: Callable[[str], Mapping[str, DiskCounts]]
    names: tuple[str, ...]
    switch: TimingSwitch | None = None
    """None if all disks are always timed."""

    def on(self, host: str) -> CountedDisks:
        """Return the same disks on another host; an empty name leaves them where they are."""
        if not host:
            return self
        switch = self.switch.run_on(host) if self.switch is not None else None
        return replace(self, ask=replace(self.ask, host=host), switch=switch)

    def parse(self, text: str) -> tuple[DiskCounts, ...]:
        """Parse the statistics in the order of the disks; empty when one is missing."""
        found = self.read(text)
        return tuple(found[name] for name in self.names) if found.keys() >= set(self.names) else ()
