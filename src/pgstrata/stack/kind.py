"""Host-side interface of every kind of device, block layer and filesystem: the other half of `spec.layers.kind`.

A volume is planned from the bottom up. A device provides block devices (`Below`), a block layer takes them and provides
its own, a filesystem takes them and provides a mount point. Each returns the steps that build it and the checks that
read it back. Adding a kind takes one module with its object and its name in `stack/__init__.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pgstrata.errors import TrialError
from pgstrata.host.capabilities import Capability
from pgstrata.host.facts.system import read_kernel_release
from pgstrata.host.protocol import Command, Host, command
from pgstrata.spec.layers.kind import BlockLayer, Device, Filesystem
from pgstrata.spec.units import render_size
from pgstrata.stack.disk_counters import CountedDisks
from pgstrata.stack.place import Place
from pgstrata.stack.sizing import Wanted
from pgstrata.stack.step import Argument, Attested, Stage, Step
from pgstrata.stack.tuning.setting import IN_EFFECT
from pgstrata.stack.undo import Undo
from pgstrata.stack.undoing import RUNS


class Check(Protocol):
    """Reads one part of a built stack back from the kernel and compares it with the configuration."""

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]: ...


@dataclass(frozen=True)
class Geometry:
    """Data layout of a striped layer: `chunk_bytes` on each of `data_disks` (those without parity or copies)."""

    chunk_bytes: int
    data_disks: int


@dataclass(frozen=True)
class Below:
    """Block devices that the part above builds on.

    `nodes` are device nodes. `media` are the nodes at the bottom, whose queues are set and whose traffic is measured;
    block layers pass them through and add none.
    """

    nodes: tuple[Argument, ...] = ()
    media: tuple[Argument, ...] = ()
    geometry: Geometry | None = None
    ids: tuple[str, ...] = ()
    """Stable ids of real devices among the nodes: a layer's data on them has to be wiped in the end."""


@dataclass(frozen=True)
class PlannedLayer:
    """A planned device or block layer."""

    steps: tuple[Step, ...]
    above: Below
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes for the user, for example a stripe that does not fit the array below."""
    counted: tuple[CountedDisks, ...] = ()
    """Disks that report their own statistics."""
    stages: tuple[Stage, ...] = ()
    """Stages that bring it up again; a device needs none."""


@dataclass(frozen=True)
class PlannedFilesystem:
    """A planned filesystem: mounted at `mount_point` when its steps are done.

    `wal_mount_point` is set by a pool that gives pg_wal its own dataset. `extra_media` are devices that the filesystem
    adds itself (log, cache).
    """

    steps: tuple[Step, ...]
    mount_point: str
    checks: tuple[Check, ...] = ()
    wal_mount_point: str | None = None
    extra_media: tuple[Argument, ...] = ()
    notes: tuple[str, ...] = ()
    counted: tuple[CountedDisks, ...] = ()
    """Self-reporting disks among the devices that the filesystem adds."""
    stages: tuple[Stage, ...] = ()
    """Stages that bring it up again over the layers below."""


Undos = Mapping[type[Undo], Callable[[Host, Any], str]]
"""Function of each undo type; it returns what was done, empty when there was nothing to do."""


def used_bytes(host: Host, mount_point: str, directory: str) -> int:
    """Return the bytes that df calls used, the filesystem's own metadata with it."""
    return parse_df_used(host.run(command("df", ["--block-size", "1"], "--output=used", mount_point)).stdout)


def parse_df_used(text: str) -> int:
    """Bytes of `df --output=used`: a headline and a number; TrialError for anything else."""
    lines = text.split()
    if len(lines) != 2 or not lines[1].isdigit():
        raise TrialError(f"df printed something else than the used space: {text.strip()!r}")
    return int(lines[1])


@dataclass(frozen=True)
class LayerKind:
    """The host-side half of a kind. `plan` takes the model, the `Below` unless it is a device, and the place."""

    model: Any
    plan: Callable[..., Any]
    capabilities: tuple[Capability, ...] = ()
    undos: Undos = field(default_factory=dict)


class DeviceKind(LayerKind):
    """The host-side half of a kind of device."""


class BlockLayerKind(LayerKind):
    """The host-side half of a kind of block layer."""


@dataclass(frozen=True)
class FilesystemKind(LayerKind):
    """The host-side half of a kind of filesystem."""

    used_bytes: Callable[[Host, str, str], int] = used_bytes
    """Physical bytes of the filesystem mounted at the first path, with the PostgreSQL directory at the second."""
    plan_empty_caches: Callable[[Any, Place], tuple[Command, ...]] = lambda fs, place: ()
    """Empties caches outside the kernel's; nothing uses the filesystem meanwhile."""
    kernel_problem: Callable[[Host, Any], str] = lambda host, fs: ""
    """Returns why the running kernel cannot have this filesystem with these options, though it has the filesystem;
    empty if it can."""
    require_room: Callable[[Host, Any, Wanted], None] = lambda host, fs, wanted: None
    """Raises PreflightError when one without a device has too little room, or cannot be reached. Those on devices are
    checked with these."""
    settings_in_effect: Mapping[str, Callable[[Host], str]] = field(default_factory=dict)
    """Setting files where 0 means `leave it as it is`, with the value in effect then."""


DEVICES: dict[str, DeviceKind] = {}
LAYERS: dict[str, BlockLayerKind] = {}
FILESYSTEMS: dict[str, FilesystemKind] = {}


def register(kind: LayerKind) -> None:
    """Register a kind, with its model."""
    name = kind.model.name()
    RUNS.update({undo.model_fields["kind"].default: (undo, run) for undo, run in kind.undos.items()})
    match kind:
        case DeviceKind():
            Device.register(kind.model)
            DEVICES[name] = kind
        case BlockLayerKind():
            BlockLayer.register(kind.model)
            LAYERS[name] = kind
        case FilesystemKind():
            Filesystem.register(kind.model)
            FILESYSTEMS[name] = kind
            IN_EFFECT.update(kind.settings_in_effect)


def plan_device(device: Device, place: Place) -> PlannedLayer:
    """Plan a device or a set of them."""
    planned: PlannedLayer = DEVICES[device.kind].plan(device, place)
    return planned


def plan_layer(layer: BlockLayer, below: Below, place: Place) -> PlannedLayer:
    """Plan a block layer over `below`."""
    planned: PlannedLayer = LAYERS[layer.kind].plan(layer, below, place)
    return planned


def plan_filesystem(fs: Filesystem, below: Below, place: Place) -> PlannedFilesystem:
    """Plan a filesystem over `below` (empty if it takes no device)."""
    planned: PlannedFilesystem = FILESYSTEMS[fs.kind].plan(fs, below, place)
    return planned


def release_problem(host: Host, what: str, first: tuple[int, int]) -> str:
    """Return why this kernel lacks `what`, which came with `first`; empty when it has it."""
    release = read_kernel_release(host) or ""
    numbers = re.match(r"(\d+)\.(\d+)", release)
    if numbers is not None and (int(numbers[1]), int(numbers[2])) >= first:
        return ""
    return f"{what} needs Linux {first[0]}.{first[1]}, this is {release or 'unknown'}"


def block_size_problem(host: Host, kind: str, block_bytes: int | None, first: tuple[int, int]) -> str:
    """Return why this kernel lacks such blocks; `first` is the first kernel with blocks larger than a page."""
    if block_bytes is None or block_bytes <= int(host.run(command("getconf", "PAGE_SIZE")).stdout):
        return ""
    return release_problem(host, f"{kind} with blocks of {render_size(block_bytes)}, larger than a page,", first)
