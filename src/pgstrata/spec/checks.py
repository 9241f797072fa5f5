"""Nonsense that no single layer can see: refused with the reason, before anything is touched.

Pure functions of models, called by the validators of `Volume`, `Stack` and `Campaign`; each returns the reason or None,
or raises Refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgstrata.spec.geometry import count_problem

if TYPE_CHECKING:
    from pgstrata.spec.stack import Ext4, Layer, Stack, Volume, Xfs, Zfs

PAGE_BYTES = 8192


class Refused(ValueError):
    """What does not go together; `hint` says what would."""

    def __init__(self, text: str, hint: str) -> None:
        super().__init__(text)
        self.hint = hint


def volume_problem(volume: Volume, *, device_given: bool) -> str | None:
    """Why this device, these layers and this filesystem do not go together; None if they do."""
    from pgstrata.spec.stack import WITHOUT_DEVICE, Nfs

    fs = volume.fs
    if fs.kind in WITHOUT_DEVICE:
        if volume.layers:
            return f"{fs.kind} takes no device and no block layer: it does not sit on a block device"
        return f"{fs.kind} takes no device and no block layer" if device_given else None
    if isinstance(fs, Nfs) and fs.server is not None:
        if fs.export is not None:
            return "an existing NFS export is another machine's: what it exports cannot be chosen here"
        if volume.layers or device_given:
            return "an existing NFS export takes no device and no block layer: what is below it is the server's"
        return None
    if isinstance(fs, Nfs) and fs.export is None and volume.layers:
        return "nfs over a block layer needs the filesystem that is exported: nfs(xfs)"
    return _layers_problem(volume.layers, fs.kind) or _counts_problem(volume)


def stack_problem(stack: Stack) -> str | None:
    """Why these volumes do not make one stack: a disk or a directory that two of them use."""
    from pgstrata.spec.stack import DiskDevice, Existing, Zfs

    if stack.wal is not None and isinstance(stack.data.fs, Zfs) and stack.data.fs.wal_dataset is not None:
        return "pg_wal is placed twice: by wal and by the wal_dataset of zfs"
    seen: dict[str, str] = {}
    for role, volume in stack.volumes.items():
        devices = [volume.device] if volume.needs_device else []
        if isinstance(volume.fs, Zfs):
            devices += [d for d in (volume.fs.log, volume.fs.cache, volume.fs.special) if d is not None]
        places = [i for d in devices if isinstance(d, DiskDevice) for i in d.ids]
        places += [volume.fs.path] if isinstance(volume.fs, Existing) else []
        for place in places:
            if place in seen:
                both = f"{seen[place]} and {role}" if seen[place] != role else f"{role} twice"
                return f"{place} is used by {both}"
            seen[place] = role
    return None


def refuse_keep(stacks: tuple[Stack, ...], *, scales: int, aa: bool) -> None:
    """With `load: keep` every stack stays built between its runs, so that none may use another's disk; raises Refused.

    A stack is kept once for each scale, and with `runs.aa` the first one under its second name too.
    """
    owner: dict[str, str] = {}
    for stack in stacks:
        for place in disk_ids(stack):
            if owner.setdefault(place, stack.name) != stack.name:
                raise Refused(
                    f"runs.load is keep, but stacks {owner[place]!r} and {stack.name!r} share {place}",
                    "give each stack disks of its own, or use `load: copy`",
                )
            if scales > 1:
                raise Refused(
                    f"runs.load is keep, but stack {stack.name!r} would be kept at {scales} scales on one {place}",
                    "name one scale, or use `load: copy`",
                )
    disks = disk_ids(stacks[0])
    if aa and disks:
        raise Refused(
            f"runs.load is keep and runs.aa runs {stacks[0].name!r} under two names, but both would share {disks[0]}",
            "use `load: copy`, name a stack without disks first, or leave `aa` out",
        )


def disk_ids(stack: Stack) -> list[str]:
    """Ids of the real disks of a stack."""
    from pgstrata.spec.stack import DiskDevice, Zfs

    devices = [volume.device for volume in stack.volumes.values() if volume.needs_device]
    pools = [volume.fs for volume in stack.volumes.values() if isinstance(volume.fs, Zfs)]
    devices += [d for fs in pools for d in (fs.log, fs.cache, fs.special) if d is not None]
    return [i for d in devices if isinstance(d, DiskDevice) for i in d.ids]


def _layers_problem(layers: tuple[Layer, ...], fs_kind: str) -> str | None:
    kinds = [layer.kind for layer in layers]
    if fs_kind == "zfs" and "md" in kinds:
        return "zfs over md hides the disks from zfs, which then cannot repair: use a vdev layout of zfs instead"
    if fs_kind == "zfs" and "lvm" in kinds:
        return "zfs over lvm doubles the pooling and hides flush errors of single disks: give the disks to zfs"
    for kind in ("md", "lvm"):
        if kinds.count(kind) > 1:
            return f"two layers of {kind} on top of each other"
    if kinds == ["lvm", "md"]:
        return "md over lvm: the one LV would be the only member; put md below lvm"
    return None


def _counts_problem(volume: Volume) -> str | None:
    """Devices are consumed by the first layer, or by the filesystem where there is none."""
    from pgstrata.spec.stack import Btrfs, Lvm, Md, Zfs

    count, fs = volume.device.count, volume.fs
    if volume.layers:
        first = volume.layers[0]
        layout = first.level if isinstance(first, Md) else first.layout
        problem = count_problem(first.kind, layout, count)
        upper: Btrfs | Zfs | Lvm | None = fs if isinstance(fs, Btrfs) else None
        if problem is None and len(volume.layers) > 1 and isinstance(volume.layers[1], Lvm):
            problem = count_problem("lvm", volume.layers[1].layout, 1)
        if problem is None and isinstance(upper, Btrfs):
            problem = _btrfs_problem(upper, 1)
        return problem
    if isinstance(fs, Btrfs):
        return _btrfs_problem(fs, count)
    if isinstance(fs, Zfs):
        return count_problem("zfs", fs.vdev, count) or _zfs_problem(fs)
    if count > 1:
        return f"{fs.kind} sits on one device, and {count} are given: put md or lvm between, or give one"
    return None


def _btrfs_problem(fs: object, count: int) -> str | None:
    for what in ("data", "metadata"):
        profile = getattr(fs, what)
        if profile is not None and (problem := count_problem("btrfs", profile, count)):
            return f"{problem} ({what} profile)"
    return None


def _zfs_problem(fs: Zfs) -> str | None:
    if fs.log_mirror and fs.log is None:
        return "log_mirror without a log device"
    if fs.log_mirror and fs.log is not None and fs.log.count < 2:
        return "a mirrored log needs 2 devices"
    return None


def ext4_problem(fs: Ext4) -> str | None:
    """Why these ext4 features and mount options exclude each other."""
    block = fs.block_size or 4096
    if fs.block_size is not None and fs.block_size not in (1024, 2048, 4096, 8192, 16384, 32768, 65536):
        return f"block_size {fs.block_size} is not a power of two from 1k to 64k"
    if not fs.has_journal and (fs.journal_size or fs.fast_commit or fs.data):
        return "without a journal there is no journal_size, fast_commit or data mode"
    if fs.bigalloc_cluster is not None and (
        fs.bigalloc_cluster <= block or fs.bigalloc_cluster & (fs.bigalloc_cluster - 1)
    ):
        return f"bigalloc_cluster is a power of two above the block size ({block}), not {fs.bigalloc_cluster}"
    if fs.data == "journal" and fs.fast_commit:
        return "fast_commit does nothing with data=journal (ext4 falls back to full commits): choose one"
    if fs.stripe_width_blocks and fs.stride_blocks and fs.stripe_width_blocks % fs.stride_blocks:
        return "stripe_width_blocks is a multiple of stride_blocks (stride x data disks)"
    return None


def xfs_problem(fs: Xfs) -> str | None:
    """Why these xfs options exclude each other."""
    if (fs.su is None) != (fs.sw is None):
        return "su and sw go together"
    if fs.block_size is not None and (fs.block_size & (fs.block_size - 1) or not 1024 <= fs.block_size <= 65536):
        return f"block_size {fs.block_size} is not a power of two from 1k to 64k"
    if fs.su is not None and fs.su % (fs.block_size or 4096):
        return f"su {fs.su} is not a multiple of the block size"
    if fs.sector_size is not None and fs.sector_size > (fs.block_size or 4096):
        return "sector_size is larger than the block size"
    return None
