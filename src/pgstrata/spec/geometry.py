"""How many devices a layout needs: minima of the tools, and what is taken where nobody said.

Minima: mdadm(8), mkfs.btrfs(8) `PROFILES`, zpoolconcepts(7). raid10 of md and btrfs can be had over fewer than four
devices, but is then a mirror under another name; published comparisons have been spoilt by such labels.
"""

from __future__ import annotations

MD_MINIMUM = {"raid0": 2, "raid1": 2, "raid10": 4, "raid5": 3, "raid6": 4}
BTRFS_MINIMUM = {"single": 1, "dup": 1, "raid0": 2, "raid1": 2, "raid10": 4, "raid5": 2, "raid6": 3}
ZFS_MINIMUM = {"stripe": 1, "mirror": 2, "raid10": 4, "raidz1": 2, "raidz2": 3, "raidz3": 4}

_BTRFS_USUAL = {**BTRFS_MINIMUM, "raid5": 3, "raid6": 4}
_ZFS_USUAL = {**ZFS_MINIMUM, "raidz1": 3, "raidz2": 4, "raidz3": 5}


def usual_count(kind: str, layout: str | None) -> int:
    """Devices taken for a layer or filesystem where neither the user nor a device list says how many."""
    if kind == "md":
        return MD_MINIMUM.get(layout or "", 1)
    if kind == "lvm":
        return 2 if layout == "striped" else 1
    if kind == "btrfs":
        return _BTRFS_USUAL.get(layout or "single", 1)
    if kind == "zfs":
        return _ZFS_USUAL.get(layout or "stripe", 1)
    return 1


def count_problem(kind: str, layout: str | None, count: int) -> str | None:
    """Why `count` devices cannot make that layout; None if they can."""
    minimum = {"md": MD_MINIMUM, "btrfs": BTRFS_MINIMUM, "zfs": ZFS_MINIMUM}.get(kind, {}).get(layout or "", 1)
    label = f"{kind} {layout}" if layout else kind
    if count < minimum:
        return f"{label} needs at least {minimum} devices, not {count}"
    if kind == "lvm" and layout == "striped" and count < 2:
        return f"lvm striped needs at least 2 devices, not {count}"
    if kind == "zfs" and layout == "raid10" and count % 2:
        return f"zfs raid10 stripes over mirrors of two, so it needs an even number of devices, not {count}"
    return None
