"""What zfs leaves on a disk: it partitions whole disks, and dozens of labels survive the destruction of a pool."""

from __future__ import annotations

from pgstrata.host.protocol import Host, command
from pgstrata.stack.nodes import list_partitions

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
