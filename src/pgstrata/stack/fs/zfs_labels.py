"""What zfs leaves on a disk: it partitions whole disks, and dozens of labels survive the destruction of a pool."""

from __future__ import annotations

from typing import Literal

from pgstrata.host.protocol import Host, command
from pgstrata.stack.nodes import list_partitions
from pgstrata.stack.safety import find_again
from pgstrata.stack.undo import Undo
from pgstrata.stack.undoing import UNMOUNT_TIMEOUT_S, ask_tool, blank_member, require_ours

ZFS_MEMBER = "zfs_member"
PARTITION_TYPES = ("6a898cc3-1dd2-11b2-99a6-080020736631", "6a945a3b-1dd2-11b2-99a6-080020736631")
"""GPT types that zpool gives to the partition with the data and to the small reserved one behind it."""


def wipe_member(host: Host, node: str, pool: str) -> bool:
    """Wipes a device that was a member of `pool`, with the partitions that zpool made; False when it was none.

    One whose partitions are of zfs but carry no label yet was being made into a member when its trial was killed.
    """
    partitions = [f"/dev/{name}" for name in list_partitions(host, node)]
    probed = [probe(host, n) for n in (node, *partitions)]
    whole_is_ours = _is_member(probed[0], pool)
    ours = partitions and all(_is_member(p, pool) or _is_unlabelled(p) for p in probed[1:])
    if not whole_is_ours and not ours:
        return False
    # in this order: with the partition table gone, the partitions are gone too
    host.run(command("wipefs", "--all", partitions, node))
    return True


def probe(host: Host, node: str) -> dict[str, str]:
    """What `blkid --probe` finds on a node and says of its partition entry. Given several, it stops at an empty one."""
    printed = host.run(command("blkid", "--probe", ["--output", "export"], node), check=False)
    return dict(line.split("=", 1) for line in printed.stdout.splitlines() if "=" in line)


def _is_member(found: dict[str, str], pool: str) -> bool:
    return found.get("TYPE") == ZFS_MEMBER and found.get("LABEL") == pool


def _is_unlabelled(found: dict[str, str]) -> bool:
    return "TYPE" not in found and found.get("PART_ENTRY_TYPE") in PARTITION_TYPES


class DestroyPool(Undo):
    """Destroy a zfs pool, and wipe its labels and partitions from the real `devices` (ids)."""

    kind: Literal["destroy_pool"] = "destroy_pool"
    pool: str
    devices: tuple[str, ...] = ()


def destroy_pool(host: Host, undo: DestroyPool) -> str:
    """Destroys the pool, and wipes what it left on real devices."""
    require_ours(undo.pool)
    done = []
    if ask_tool(host, "zpool", "list", "-H", ["-o", "name"], undo.pool).exit_code == 0:
        host.run(command("zpool", "destroy", "-f", undo.pool, timeout_s=UNMOUNT_TIMEOUT_S))
        done.append(f"destroyed pool {undo.pool}")
    for id_ in undo.devices:
        node = find_again(host, id_)
        if node and wipe_member(host, node, undo.pool):
            blank_member(host, node)
            done.append(f"wiped the zfs labels of {id_}")
    return "; ".join(done)
