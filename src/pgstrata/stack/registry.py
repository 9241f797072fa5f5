"""Which function plans which kind: a new layer is one module and one line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pgstrata.spec.layers.kind import BlockLayer, Device, Filesystem
from pgstrata.stack.block import disk, loop, lvm, md
from pgstrata.stack.fs import btrfs, existing, ext4, nfs, tmpfs, xfs, zfs
from pgstrata.stack.parts import Below, FsPart, Part, Place

# Each function takes the model of its own kind, which the discriminator guarantees; Callable cannot say so.
DEVICES: dict[str, Callable[[Any, Place], Part]] = {
    "loop": loop.plan_loop,
    "disk": disk.plan_disk,
}
LAYERS: dict[str, Callable[[Any, Below, Place], Part]] = {
    "lvm": lvm.plan_lvm,
    "md": md.plan_md,
}
FILESYSTEMS: dict[str, Callable[[Any, Below, Place], FsPart]] = {
    "ext4": ext4.plan_ext4,
    "xfs": xfs.plan_xfs,
    "btrfs": btrfs.plan_btrfs,
    "tmpfs": tmpfs.plan_tmpfs,
    "dir": existing.plan_existing,
    "zfs": zfs.plan_zfs,
    "nfs": nfs.plan_nfs,
}


def plan_device(device: Device, place: Place) -> Part:
    """The plan of a device or a set of them."""
    return DEVICES[device.kind](device, place)


def plan_layer(layer: BlockLayer, below: Below, place: Place) -> Part:
    """The plan of a block layer over `below`."""
    return LAYERS[layer.kind](layer, below, place)


def plan_filesystem(fs: Filesystem, below: Below, place: Place) -> FsPart:
    """The plan of a filesystem over `below` (which is empty where it takes no device)."""
    return FILESYSTEMS[fs.kind](fs, below, place)
