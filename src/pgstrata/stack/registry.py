"""Every kind there is: a new one is a module and a line here. The order is that of reports.

What is registered from outside the package (`stack.kind.register`) is taken in the same way.
"""

from __future__ import annotations

from pgstrata.stack.block import disk, loop, luks, lvm, md, media, zvol
from pgstrata.stack.fs import btrfs, existing, ext4, nfs, tmpfs, xfs, zfs
from pgstrata.stack.kind import AnyKind, register

KINDS: tuple[AnyKind, ...] = (
    *(loop.KIND, disk.KIND, media.KIND),
    *(lvm.KIND, md.KIND, luks.KIND, zvol.KIND),
    *(ext4.KIND, xfs.KIND, btrfs.KIND, zfs.KIND, tmpfs.KIND, nfs.KIND, existing.KIND),
)


def register_kinds() -> None:
    """Makes all kinds known; done once, when the package is imported."""
    for kind in KINDS:
        register(kind)
