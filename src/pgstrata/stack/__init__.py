"""Plan, build, attest and undo stacks on a host.

Functions named `plan_` are pure and return steps. `build` runs them and registers every undo in the host's journal
before the step is applied. `attest` reads back from the kernel what was built. Imports `errors`, `spec`, `host`.

Every kind is listed here, in the order of reports: a new one is a module and a name in this list. Kinds registered from
outside the package (`stack.kind.register`) are treated alike.
"""

from pgstrata.stack.block import disk, loop, luks, lvm, md, media, zvol
from pgstrata.stack.fs import btrfs, existing, ext4, nfs, tmpfs, xfs, zfs
from pgstrata.stack.kind import register

for module in (loop, disk, media, lvm, md, luks, zvol, ext4, xfs, btrfs, zfs, tmpfs, nfs, existing):
    register(module.KIND)
