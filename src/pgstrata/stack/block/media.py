"""Disks of strata-disk: a daemon for each volume serves them as files, which are attached as loop devices."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from pgstrata.errors import parser_of
from pgstrata.host.capabilities import UTIL_LINUX, Capability, Need, always, kernel_has
from pgstrata.host.facts.filesystems import driver_available
from pgstrata.host.protocol import Host, command
from pgstrata.spec.layers.media import UNTIMED, MediaDevice
from pgstrata.stack.block.delivery import PROGRAM, deliver, environment, lacking
from pgstrata.stack.block.loop import DetachLoops, LoopCheck, plan_attach
from pgstrata.stack.disk_counts import CountedDisks, DiskCounts
from pgstrata.stack.kind import Below, DeviceKind, PlannedLayer
from pgstrata.stack.place import Place
from pgstrata.stack.step import Attested, PlannedCommand, Ref, Step, planned, told
from pgstrata.stack.undo import RemovePath, Undo

DATA = "data"
"""The role of the volume that is planned first."""


def call(*words: str) -> PlannedCommand:
    """The program with some arguments, wherever it lies."""
    return replace(planned(PROGRAM, list(words)), env=environment())


def plan_media(device: MediaDevice, place: Place) -> PlannedLayer:
    """One daemon with `device.count` disks, each attached to a loop device; binds `ROLE.0`, `ROLE.1`, ...

    The recorded disks of all volumes belong to one daemon, so that their events have one order; the data volume, which
    is built first, starts it.
    """
    size_bytes = device.size or place.loop_size_bytes
    folder = recorded_folder(place.work_directory) if device.recorded else f"{place.work_directory}/{place.role}.media"
    first = recorded_disk(place.role, "") if device.recorded else "disk"
    names = [f"{first}{i}" for i in range(device.count)]
    files = tuple(f"{folder}/disks/{name}" for name in names)
    nodes = tuple(Ref(f"{place.role}.{i}") for i in range(device.count))
    timing = ["--media", device.model, "--stretch", f"{device.stretch:g}"] if device.model != UNTIMED else []
    options = ["--size", str(size_bytes), *timing]
    joins = device.recorded and place.role != DATA
    log = log_path(folder)
    logging = ["--log", log] if device.recorded else []
    serving = () if joins else (call("serve", folder, "--background", *logging),)
    adding = (call("add", folder, name, *options, "--seed", str(i)) for i, name in enumerate(names))
    make = Step(
        name=f"modelled disks for {place.role}",
        commands=(*serving, *adding),
        undo=(
            *((RemovePath(path=log),) if device.recorded and not joins else ()),
            *((DetachLoops(backing_files=files),) if joins else undos_of(folder, files)),
        ),
    )
    attach = (plan_attach(file, node) for file, node in zip(files, nodes, strict=True))
    checks = (LoopCheck(nodes, files, size_bytes), MediaCheck(nodes, folder, first, device.model, device.stretch))
    parse = partial(parse_statistics, first=first)
    accounts = CountedDisks(tuple(node.name for node in nodes), call("stats", folder), parse)
    counted = (accounts,) if device.model != UNTIMED else ()
    return PlannedLayer((make, *attach), Below(nodes=nodes, media=nodes), checks, counted=counted)


def recorded_folder(work_directory: str) -> str:
    """The folder of the daemon that has the recorded disks of all volumes."""
    return f"{work_directory}/recorded.media"


def recorded_disk(role: str, number: int | str) -> str:
    """What a recorded disk of a volume is called in the event log."""
    return f"{role.replace('.', '-')}-{number}"


def log_path(folder: str) -> str:
    """Where a daemon's events are logged: beside its folder."""
    return f"{folder}.log"


def undos_of(folder: str, files: tuple[str, ...]) -> tuple[Undo, ...]:
    """Takes back a daemon in a folder and the loop devices over its files."""
    return RemovePath(path=folder), StopMedia(folder=folder), DetachLoops(backing_files=files)


def calibrate(host: Host, folder: str) -> Mapping[str, float]:
    """From which stretch on this host is no slower than a model, by model. Serves a disk in the folder meanwhile;
    `undos_of` it and its `disks/disk` takes back what a broken attempt leaves."""
    return parse_calibration(host.run(call("calibrate", folder).resolve({})).stdout)


@parser_of(PROGRAM)
def parse_calibration(text: str) -> Mapping[str, float]:
    """`smallest_stretch` of every model of `strata-disk calibrate`."""
    return {str(one["model"]): float(one["smallest_stretch"]) for one in json.loads(text)["models"]}


@parser_of(PROGRAM)
def parse_statistics(text: str, first: str = "disk") -> tuple[DiskCounts, ...]:
    """The disks of `strata-disk stats` whose names are `first` and a number, in the order of these."""
    names = re.compile(re.escape(first) + "([0-9]+)")
    found = ((names.fullmatch(str(disk["name"])), disk) for disk in json.loads(text)["disks"])
    numbered = sorted(((int(name[1]), disk) for name, disk in found if name), key=lambda pair: pair[0])
    return tuple(_parse_disk(disk) for _, disk in numbered)


def _parse_disk(disk: Mapping[str, Any]) -> DiskCounts:
    effort = disk["effort"] or {"busy_s": 0.0, "seeks": 0, "seek_s": 0.0}
    own = ("reads", "writes", "zeroes", "flushes", "errors", "read_bytes", "written_bytes")
    return DiskCounts(
        model=str(disk["model"] or UNTIMED),
        parameters={str(name): float(value) for name, value in (disk["parameters"] or {}).items()},
        stretch=float(disk["stretch"] or 1),
        elapsed_s=float(disk["elapsed_s"]),
        queued_s=float(disk["queued_s"]),
        busy_s=float(effort["busy_s"]),
        seeks=int(effort["seeks"]),
        seek_s=float(effort["seek_s"]),
        late_percent_counts=tuple(int(count) for count in disk["late_percent_counts"] or ()),
        **{name: int(disk[name]) for name in own},
    )


def read_statistics(host: Host, folder: str, first: str = "disk") -> tuple[DiskCounts, ...]:
    """What each disk of a daemon did whose name begins so; empty when it does not answer."""
    asked = host.run(call("stats", folder).resolve({}), check=False)
    return parse_statistics(asked.stdout, first) if asked.exit_code == 0 else ()


@dataclass(frozen=True)
class MediaCheck:
    """The model that is in force is the one that was asked for, and a flush of the device reaches it."""

    nodes: tuple[Ref, ...]
    folder: str
    first: str
    """What the names of its disks begin with."""
    model: str
    stretch: float

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        before = read_statistics(host, self.folder, self.first)
        for ref in self.nodes:
            host.run(command("sync", ref.resolve(bindings)), check=False)  # one that fails did not arrive
        after = read_statistics(host, self.folder, self.first)
        if len(before) != len(self.nodes) or len(after) != len(self.nodes):
            return tuple(Attested(f"media {ref.name} model", self.model, "no answer") for ref in self.nodes)
        rows = [told(f"media {self.nodes[0].name.rpartition('.')[0]} parameters", _parameters(after[0]))]
        for ref, old, new in zip(self.nodes, before, after, strict=True):
            what, arrives = f"media {ref.name}", new.flushes > old.flushes
            rows += (
                Attested(f"{what} model", self.model, new.model),
                Attested(f"{what} stretch", f"{self.stretch:g}", f"{new.stretch:g}"),
                Attested(f"{what} flush", "arrives", "arrives" if arrives else "does not arrive"),
            )
        return tuple(rows)


def _parameters(disk: DiskCounts) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in disk.parameters.items())


class StopMedia(Undo):
    """End the daemon that serves in this folder, and what one that was killed left mounted there."""

    kind: Literal["stop_media"] = "stop_media"
    folder: str


def _stop_media(host: Host, undo: StopMedia) -> str:
    if host.status(undo.folder) is None:
        return ""
    deliver(host)  # an earlier version may have begun this
    host.run(call("stop", undo.folder).resolve({}))
    return f"stopped the modelled disks of {undo.folder}"


KIND = DeviceKind(
    MediaDevice,
    plan_media,
    capabilities=(
        Capability(
            MediaDevice.capability,
            "have disks with the timing of modelled media",
            (
                Need(
                    lacking,
                    advice=always(
                        "make setup builds strata-disk where cargo is (Rust 1.85); a wheel built there holds it"
                    ),
                ),
                kernel_has(lambda host: host.status("/dev/fuse") is not None, "/dev/fuse"),
                kernel_has(lambda host: driver_available(host, "loop", "loop"), "loop devices"),
                *UTIL_LINUX,
            ),
        ),
    ),
    undos={StopMedia: _stop_media},
)
