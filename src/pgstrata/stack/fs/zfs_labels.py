"""Remains of zfs on a disk: it partitions whole disks, and dozens of labels survive the destruction of a pool."""

from __future__ import annotations

from typing import Literal

from pgstrata.host.protocol import Host, command
from pgstrata.stack.place import list_partitions
from pgstrata.stack.safety import find_again
from pgstrata.stack.undo import Undo
from pgstrata.stack.undoing import UNMOUNT_TIMEOUT_S, ask_tool, blank_member, require_ours

ZFS_MEMBER = "zfs_member"
PARTITION_TYPES = ("6a898cc3-1dd2-11b2-99a6-080020736631", "6a945a3b-1dd2-11b2-99a6-080020736631")
"""GPT types of the data partition made by zpool and of the small reserved one behind it."""


def wipe_member(host: Host, node: str, pool: str) -> bool:
    """Wipe a device that was a member of `pool`, with zpool's partitions; False when it was not a member.

    A disk with zfs partitions but no label was being made a member when its trial was killed.
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
    """Return the values that `blkid --probe` prints for a node and its partition entry. Given several nodes, it stops
    at an empty one."""
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
    """Destroy the pool, and wipe its remains from real devices."""
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
