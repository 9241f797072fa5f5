"""Every kind there is: a new one is a module beside this one and a line here. The order is that of documents.

What is registered from outside the package (`Filesystem.register`) is taken in the same way.
"""

from __future__ import annotations

from pgstrata.spec.layers.btrfs import Btrfs
from pgstrata.spec.layers.devices import DiskDevice, LoopDevice
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.layers.kind import BlockLayer, Device, Filesystem
from pgstrata.spec.layers.luks import Luks
from pgstrata.spec.layers.lvm import Lvm
from pgstrata.spec.layers.md import Md
from pgstrata.spec.layers.media import MediaDevice
from pgstrata.spec.layers.nfs import Nfs
from pgstrata.spec.layers.not_built import Existing, Imported, RunningServer
from pgstrata.spec.layers.tmpfs import Tmpfs
from pgstrata.spec.layers.xfs import Xfs
from pgstrata.spec.layers.zfs import Zfs, Zvol

DEVICES: tuple[type[Device], ...] = (LoopDevice, DiskDevice, MediaDevice)
LAYERS: tuple[type[BlockLayer], ...] = (Lvm, Md, Luks, Zvol)
FILESYSTEMS: tuple[type[Filesystem], ...] = (Ext4, Xfs, Btrfs, Zfs, Tmpfs, Nfs, Existing, RunningServer, Imported)


def register_kinds() -> None:
    """Make all kinds known; done once, by `spec.stack`."""
    for kind in (*DEVICES, *LAYERS, *FILESYSTEMS):
        kind.register(kind)
