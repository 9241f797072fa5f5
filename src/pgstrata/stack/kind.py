"""What is asked of every kind of device, block layer and filesystem that takes a host: the other half of
`spec.layers.kind`.

A volume is planned from the bottom up. A device gives block devices (`Below`), a block layer takes them and gives its
own, a filesystem takes them and gives a mount point. Each gives the steps that build it and the checks that read it
back. Adding a kind is one module with its object and one line in `registry.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pgstrata.host.capabilities import Capability
from pgstrata.host.protocol import Command, Host
from pgstrata.spec.layers.kind import BlockLayer, Device, Filesystem
from pgstrata.stack.disk_counts import CountedDisks
from pgstrata.stack.place import Place
from pgstrata.stack.room import Wanted
from pgstrata.stack.space import used_bytes
from pgstrata.stack.stage import Stage
from pgstrata.stack.step import Argument, Attested, Step
from pgstrata.stack.tuning.setting import IN_EFFECT
from pgstrata.stack.undo import Undo
from pgstrata.stack.undoing import RUNS


class Check(Protocol):
    """Reads one thing of a built stack back from the kernel and sets it beside what was asked."""

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]: ...


@dataclass(frozen=True)
class Geometry:
    """How a striped layer spreads data: `chunk_bytes` on each of `data_disks` (those without parity or copies)."""

    chunk_bytes: int
    data_disks: int


@dataclass(frozen=True)
class Below:
    """The block devices that the part above builds on.

    `nodes` are device nodes. `media` are the nodes at the bottom, whose queues are set and whose traffic is
    measured; block layers hand them through and add nothing.
    """

    nodes: tuple[Argument, ...] = ()
    media: tuple[Argument, ...] = ()
    geometry: Geometry | None = None
    ids: tuple[str, ...] = ()
    """Stable ids of those nodes that are real devices: what a layer writes on them has to be wiped in the end."""


@dataclass(frozen=True)
class PlannedLayer:
    """A planned device or block layer."""

    steps: tuple[Step, ...]
    above: Below
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    """What a user should know, for example a stripe that does not fit the array below."""
    counted: tuple[CountedDisks, ...] = ()
    """Disks that say themselves what they did."""
    stages: tuple[Stage, ...] = ()
    """How it is brought up again; a device needs nothing."""


@dataclass(frozen=True)
class PlannedFilesystem:
    """A planned filesystem: mounted at `mount_point` when its steps are done.

    `wal_mount_point` is set by a pool that gives pg_wal a dataset of its own. `extra_media` are devices that
    the filesystem brought itself (log, cache).
    """

    steps: tuple[Step, ...]
    mount_point: str
    checks: tuple[Check, ...] = ()
    wal_mount_point: str | None = None
    extra_media: tuple[Argument, ...] = ()
    notes: tuple[str, ...] = ()
    counted: tuple[CountedDisks, ...] = ()
    """Of the devices that the filesystem brought itself."""
    stages: tuple[Stage, ...] = ()
    """How it is brought up again over what is below."""


Undos = Mapping[type[Undo], Callable[[Host, Any], str]]
"""What each undo of a kind does; it says what was done, nothing when there was nothing to do."""

# Each function takes the model of its own kind, which the discriminator guarantees; Callable cannot say so.


@dataclass(frozen=True)
class DeviceKind:
    """The half of a kind of device that takes a host."""

    model: type[Device]
    plan: Callable[[Any, Place], PlannedLayer]
    capabilities: tuple[Capability, ...] = ()
    undos: Undos = field(default_factory=dict)


@dataclass(frozen=True)
class BlockLayerKind:
    """The half of a kind of block layer that takes a host."""

    model: type[BlockLayer]
    plan: Callable[[Any, Below, Place], PlannedLayer]
    capabilities: tuple[Capability, ...] = ()
    undos: Undos = field(default_factory=dict)


def _nothing_to_empty(place: Place) -> tuple[Command, ...]:
    return ()


def _fits_kernel(host: Host, fs: Filesystem) -> str:
    return ""


def _needs_no_room(host: Host, fs: Filesystem, wanted: Wanted) -> None:
    """What lies on devices is checked with them."""


@dataclass(frozen=True)
class FilesystemKind:
    """The half of a kind of filesystem that takes a host."""

    model: type[Filesystem]
    plan: Callable[[Any, Below, Place], PlannedFilesystem]
    capabilities: tuple[Capability, ...] = ()
    undos: Undos = field(default_factory=dict)
    used_bytes: Callable[[Host, str, str], int] = used_bytes
    """Physical bytes of what is mounted at the first path, with the directory of PostgreSQL at the second."""
    plan_empty_caches: Callable[[Place], tuple[Command, ...]] = _nothing_to_empty
    """Empties the caches that are not the kernel's; nothing uses the filesystem meanwhile."""
    kernel_problem: Callable[[Host, Any], str] = _fits_kernel
    """Why the running kernel cannot have one made like that, though it has the filesystem; empty when it can."""
    require_room: Callable[[Host, Any, Wanted], None] = _needs_no_room
    """PreflightError where one that sits on no device has too little room, or cannot be reached."""
    settings_in_effect: Mapping[str, Callable[[Host], str]] = field(default_factory=dict)
    """Files of settings that take 0 for `leave it as it is`, and what is in effect then."""


AnyKind = DeviceKind | BlockLayerKind | FilesystemKind

DEVICES: dict[str, DeviceKind] = {}
LAYERS: dict[str, BlockLayerKind] = {}
FILESYSTEMS: dict[str, FilesystemKind] = {}


def register(kind: AnyKind) -> None:
    """Makes a kind known, with its model."""
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
    """The plan of a device or a set of them."""
    return DEVICES[device.kind].plan(device, place)


def plan_layer(layer: BlockLayer, below: Below, place: Place) -> PlannedLayer:
    """The plan of a block layer over `below`."""
    return LAYERS[layer.kind].plan(layer, below, place)


def plan_filesystem(fs: Filesystem, below: Below, place: Place) -> PlannedFilesystem:
    """The plan of a filesystem over `below` (which is empty where it takes no device)."""
    return FILESYSTEMS[fs.kind].plan(fs, below, place)
