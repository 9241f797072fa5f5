"""Statistics of modelled disks, counted since their creation: read, and compared with the configuration."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pgstrata.errors import TrialError, parser_of
from pgstrata.host.protocol import Host, command
from pgstrata.spec.layers.media import UNTIMED
from pgstrata.stack.step import Attested, PlannedCommand, Ref, told
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


FLUSH_TIMEOUT_S = 1800.0
"""A stretched disk that turns drains its cache first."""


@parser_of("strata-disk stats")
def parse_statistics(text: str) -> Mapping[str, DiskCounts]:
    """Parse the disks of `strata-disk stats` by name."""
    return {str(disk["name"]): _parse_disk(disk) for disk in json.loads(text)["disks"]}


@parser_of("strata-disk stats")
def parse_nodes(text: str) -> Mapping[str, str]:
    """Parse the disks that are ublk block devices, by node."""
    return {str(node): str(disk) for disk, node in json.loads(text)["nodes"].items()}


def _parse_disk(disk: Mapping[str, Any]) -> DiskCounts:
    effort = disk["effort"] or {"busy_s": 0.0, "seeks": 0, "seek_s": 0.0}
    own = ("untimed", "reads", "writes", "zeroes", "flushes", "errors", "read_bytes", "written_bytes")
    return DiskCounts(
        model=str(disk["model"] or UNTIMED),
        parameters={str(name): float(value) for name, value in (disk["parameters"] or {}).items()},
        stretch=float(disk["stretch"] or 1),
        timing=disk["timing"] == "on",
        elapsed_s=float(disk["elapsed_s"]),
        queued_s=float(disk["queued_s"]),
        busy_s=float(effort["busy_s"]),
        seeks=int(effort["seeks"]),
        seek_s=float(effort["seek_s"]),
        late_percent_counts=tuple(int(count) for count in disk["late_percent_counts"] or ()),
        **{name: int(disk[name]) for name in own},
    )


def read_statistics(host: Host, counted: CountedDisks) -> tuple[DiskCounts, ...]:
    """Read the counts of each disk; empty when the daemon does not answer."""
    asked = host.run(counted.ask.resolve({}), check=False)
    return counted.parse(asked.stdout) if asked.exit_code == 0 else ()


@dataclass(frozen=True)
class AskedMedium:
    """The configured medium of a disk; `parameters` belong to a user-defined model, which has no known name."""

    model: str
    stretch: float
    parameters: Mapping[str, float] | None = None


@dataclass(frozen=True)
class MediaCheck:
    """Checks that the configured model is in force and that a flush of the device reaches it.

    `asked`: by node. `sparing`: the server of the disk passes a flush on only if something was written since the last
    one, as QEMU does; any flush since the disk was created then counts.
    """

    nodes: tuple[Ref, ...]
    counted: CountedDisks
    asked: tuple[AskedMedium, ...]
    sparing: bool = False

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        before = read_statistics(host, self.counted)
        for ref in self.nodes:
            flush = command("sync", ref.resolve(bindings), timeout_s=FLUSH_TIMEOUT_S)
            host.run(flush, check=False)  # one that fails did not arrive
        after = read_statistics(host, self.counted)
        of_nodes = tuple(zip(self.nodes, self.asked, strict=True))
        if len(before) != len(self.nodes) or len(after) != len(self.nodes):
            return tuple(Attested(f"media {ref.name} model", asked.model, "no answer") for ref, asked in of_nodes)
        first = self.nodes[0].name.rpartition(".")[0]
        rows = [told(f"media {first} parameters", _render_parameters(after[0].parameters))]
        for (ref, asked), old, new in zip(of_nodes, before, after, strict=True):
            what, arrives = f"media {ref.name}", new.flushes > (0 if self.sparing else old.flushes)
            rows += (
                Attested(f"{what} model", asked.model, new.model),
                Attested(f"{what} stretch", f"{asked.stretch:g}", f"{new.stretch:g}"),
                Attested(f"{what} flush", "arrives", "arrives" if arrives else "does not arrive"),
            )
            if asked.parameters is not None:
                own, there = _render_parameters(asked.parameters), _render_parameters(new.parameters)
                rows.append(Attested(f"{what} parameters", own, there))
        return tuple(rows)


@dataclass(frozen=True)
class TimingIs:
    """Checks whether disks take the time of their medium, by their names in the statistics."""

    counted: CountedDisks
    names: tuple[str, ...]
    on: bool

    @property
    def told(self) -> str:
        return f"refuse unless the timing of {', '.join(self.names)} is {self._wanted}"

    @property
    def _wanted(self) -> str:
        return "on" if self.on else "off"

    def require(self, host: Host, bindings: Mapping[str, str]) -> None:
        found = {disk: counts.timing for disk, counts in self._read(host).items()}
        wrong = [name for name in self.names if found.get(name) != self.on]
        if wrong:
            raise TrialError(f"the timing of modelled disk {wrong[0]} on {host.name} is not {self._wanted}")

    def _read(self, host: Host) -> Mapping[str, DiskCounts]:
        return dict(zip(self.counted.names, read_statistics(host, self.counted), strict=False))


def _render_parameters(parameters: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {parameters[name]:g}" for name in sorted(parameters))
