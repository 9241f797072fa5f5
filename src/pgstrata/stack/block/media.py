"""Disks of strata-disk, served by one daemon per volume: as ublk block devices where the host has the driver loaded,
otherwise as files attached as loop devices."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pgstrata.errors import PgstrataError, parser_of
from pgstrata.host.capabilities import UTIL_LINUX, Capability, Need, always, kernel_has, openable
from pgstrata.host.delivery import (
    BUILDING,
    PROGRAM,
    deliver,
    lacking,
    program_call,
    serving_call,
    stop_serving,
    timing_options,
)
from pgstrata.host.facts.tools import driver_available
from pgstrata.host.protocol import Host
from pgstrata.spec.layers.media import UNTIMED, MediaDevice, defined_parameters
from pgstrata.stack.block.loop import ATTACHABLE, DetachLoops, LoopCheck, list_loops, shown_size_bytes
from pgstrata.stack.disk_counters import (
    AskedMedium,
    CountedDisks,
    MediaCheck,
    TimingSwitch,
    parse_nodes,
    parse_statistics,
)
from pgstrata.stack.kind import Below, DeviceKind, PlannedLayer
from pgstrata.stack.place import Place
from pgstrata.stack.step import Argument, Attested, PlannedCommand, Ref, Step, planned
from pgstrata.stack.undo import RemovePath, Undo

UBLK_NODES = "/dev/ublkb"


def call(*words: Argument) -> PlannedCommand:
    """Return a call of the program with arguments, wherever it is installed."""
    program = PlannedCommand.of(program_call())
    return replace(program, argv=(*program.argv, *words))


def plan_serve(folder: str, *options: str) -> PlannedCommand:
    """Start a daemon marked with its folder, so that it can be found when its socket is gone."""
    return PlannedCommand.of(serving_call("serve", folder, "--background", *options))


def plan_media(device: MediaDevice, place: Place) -> PlannedLayer:
    """Plan one daemon with `device.count` disks, each attached as a block device; binds `ROLE.0`, `ROLE.1`, ...

    One daemon serves the recorded disks of all volumes, so that their events have one order. The first of these volumes
    starts it.
    """
    size_bytes = device.size or place.loop_size_bytes
    folder = recorded_folder(place.work_directory) if device.recorded else f"{place.work_directory}/{place.role}.media"
    first = recorded_disk(place.role, "") if device.recorded else "disk"
    names = [f"{first}{i}" for i in range(device.count)]
    files = tuple(f"{folder}/disks/{name}" for name in names)
    nodes = tuple(Ref(f"{place.role}.{i}") for i in range(device.count))
    own = f"{place.work_directory}/{place.role}.media.toml"
    model = device.model if device.definition is None else own
    timing = timing_options(model, device.stretch, device.timed) if device.model != UNTIMED else ()
    options = ["--size", str(size_bytes), *timing]
    joins = device.recorded and place.role != place.recorder
    log = log_path(folder)
    logging = ["--log", log] if device.recorded else []
    serving = () if joins else (plan_serve(folder, *logging),)
    writing = () if device.definition is None else (replace(planned("tee", own), stdin=device.definition),)
    adding = (call("add", folder, name, *options, "--seed", str(i)) for i, name in enumerate(names))
    make = Step(
        name=f"modelled disks for {place.role}",
        commands=(*serving, *writing, *adding),
        undo=(
            *((RemovePath(path=own),) if writing else ()),
            *((RemovePath(path=log),) if device.recorded and not joins else ()),
            *((DetachLoops(backing_files=files),) if joins else undos_of(folder, files)),
        ),
    )
    attach = (
        Step(name=f"block device {node.name}", commands=(call("attach", folder, name),), binds=node.name)
        for name, node in zip(names, nodes, strict=True)
    )
    on, off = (call("timing", folder, to, *names) for to in ("on", "off"))
    switch = TimingSwitch(tuple(names), on, off, MediaTimingOff(folder=folder, disks=tuple(names)))
    accounts = CountedDisks(
        tuple(node.name for node in nodes),
        call("stats", folder),
        parse_statistics,
        tuple(names),
        switch if device.timed == "runs" else None,
    )
    asked = (AskedMedium(device.model, device.stretch, defined_parameters(device.definition)),) * len(nodes)
    attached = AttachedCheck(nodes, tuple(names), files, size_bytes, call("stats", folder))
    checks = (attached, MediaCheck(nodes, accounts, asked))
    counted = (accounts,) if device.model != UNTIMED else ()
    return PlannedLayer((make, *attach), Below(nodes=nodes, media=nodes), checks, counted=counted)


@dataclass(frozen=True)
class AttachedCheck:
    """Checks size and backing of each disk: the ublk device that its daemon reports, or a loop device over its file."""

    nodes: tuple[Ref, ...]
    names: tuple[str, ...]
    files: tuple[str, ...]
    size_bytes: int
    ask: PlannedCommand

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        disks = tuple(zip(self.nodes, self.names, self.files, strict=True))
        by_ublk = [(ref, name) for ref, name, _ in disks if ref.resolve(bindings).startswith(UBLK_NODES)]
        by_loop = [(ref, file) for ref, _, file in disks if not ref.resolve(bindings).startswith(UBLK_NODES)]
        rows: list[Attested] = []
        if by_loop:
            refs, files = zip(*by_loop, strict=True)
            rows += LoopCheck(refs, files, self.size_bytes).attest(host, bindings)
        if by_ublk:
            said = host.run(self.ask.resolve(bindings), check=False)
            found = parse_nodes(said.stdout) if said.exit_code == 0 else {}
            for ref, name in by_ublk:
                node = ref.resolve(bindings)
                rows += (
                    Attested(f"ublk {ref.name} disk", name, found.get(node, "not attached")),
                    Attested(f"ublk {ref.name} size_bytes", str(self.size_bytes), shown_size_bytes(host, node)),
                )
        return tuple(rows)


def recorded_folder(work_directory: str) -> str:
    """Return the folder of the daemon that serves the recorded disks of all volumes."""
    return f"{work_directory}/recorded.media"


def recorded_disk(role: str, number: int | str) -> str:
    """Return the name of a volume's recorded disk in the event log."""
    return f"{role.replace('.', '-')}-{number}"


def recorded_names(nodes: Sequence[Argument]) -> dict[str, str]:
    """Map the bindings of recorded disks to their names in the event log."""
    bound = (node.name for node in nodes if isinstance(node, Ref))
    return {name: recorded_disk(*name.rsplit(".", 1)) for name in bound}


def log_path(folder: str) -> str:
    """Return the path of a daemon's event log, next to its folder."""
    return f"{folder}.log"


def undos_of(folder: str, files: tuple[str, ...]) -> tuple[Undo, ...]:
    """Return the undos for a daemon in a folder, with its own block devices, and for the loop devices over its
    files."""
    return RemovePath(path=folder), StopMedia(folder=folder), DetachLoops(backing_files=files)


def calibrate(host: Host, folder: str, models: Sequence[str] = ()) -> Mapping[str, float]:
    """Return by model the stretch from which the host is no slower than the model; `models` are files of further
    models. Serves a disk in the folder meanwhile; `undos_of` it and its `disks/disk` cleans up after a failed
    attempt."""
    further = [word for file in models for word in ("--media", file)]
    return parse_calibration(host.run(serving_call("calibrate", folder, *further)).stdout)


@parser_of(PROGRAM)
def parse_calibration(text: str) -> Mapping[str, float]:
    """Parse `smallest_stretch` of every model from `strata-disk calibrate`."""
    return {str(one["model"]): float(one["smallest_stretch"]) for one in json.loads(text)["models"]}


class StopMedia(Undo):
    """End the daemon that serves in this folder, and unmount what a killed one left there."""

    kind: Literal["stop_media"] = "stop_media"
    folder: str


def _stop_media(host: Host, undo: StopMedia) -> str:
    if host.status(undo.folder) is not None:
        _require_detached(host, undo.folder)
        deliver(host)  # an earlier version may have begun this
    return stop_serving(host, undo.folder)


def _require_detached(host: Host, folder: str) -> None:
    """Require that no loop device is attached: once the disks' mount is gone, no path leads to a backing file and no
    undo can find it."""
    over = [loop.node for loop in list_loops(host) if loop.backing_file.startswith(f"{folder}/disks/")]
    if over:
        raise PgstrataError(
            f"loop device {', '.join(over)} is still attached to the modelled disks of {folder}",
            hint=f"fuser --verbose {over[0]}",
        )


class MediaTimingOff(Undo):
    """Turns off the medium timing of these disks of the daemon in this folder."""

    kind: Literal["media_timing_off"] = "media_timing_off"
    folder: str
    disks: tuple[str, ...]


def _media_timing_off(host: Host, undo: MediaTimingOff) -> str:
    """Turn the timing off. Nothing is reported, as the disks are removed next; a stopped daemon has no timing."""
    if host.status(undo.folder) is not None:
        host.run(call("timing", undo.folder, "off", *undo.disks).resolve({}), check=False)
    return ""


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
                    advice=always(BUILDING),
                ),
                openable("/dev/fuse"),
                kernel_has(lambda host: driver_available(host, "loop", "loop"), "loop devices"),
                *ATTACHABLE,
                *UTIL_LINUX,
            ),
        ),
    ),
    undos={StopMedia: _stop_media, MediaTimingOff: _media_timing_off},
)
