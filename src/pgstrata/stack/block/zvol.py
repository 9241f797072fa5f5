"""zvol: a volume in a pool of zfs. Properties: zfsprops(7). Tested with OpenZFS 2.1.11."""

from __future__ import annotations

from pgstrata.host.capabilities import Capability
from pgstrata.spec.layers.zfs import Zvol
from pgstrata.stack.fs.zfs import (
    LOAD_MODULE,
    NEEDS,
    DatasetCheck,
    plan_import,
    plan_pool,
    pool_check,
    pool_stage,
    properties,
)
from pgstrata.stack.kind import Below, BlockLayerKind, PlannedLayer, plan_device
from pgstrata.stack.place import Place
from pgstrata.stack.step import PlannedCommand, Ref, Step, planned

VOLUME = "volume"
SHARE = 90
"""Percentage of what is free in the new pool that the volume takes; the rest is for its metadata."""
LINK_WAIT_S = 60
RECORDED = (
    *("volsize", "volblocksize", "compression", "checksum", "logbias", "redundant_metadata", "primarycache", "sync"),
)


def plan_zvol(layer: Zvol, below: Below, place: Place) -> PlannedLayer:
    """Plan a pool over all nodes below and one volume; binds `ROLE.zvol`."""
    node = Ref(f"{place.role}.zvol")
    parts = {name: plan_device(device, place.beside(f"zvol.{name}")) for name, device in layer.own_devices.items()}
    asked = properties(layer) | ({} if layer.volblocksize is None else {"volblocksize": str(layer.volblocksize)})
    up = (*plan_import(layer, below, parts, place), *_plan_find(place))
    return PlannedLayer(
        (LOAD_MODULE, *plan_pool(layer, below, parts, place), *_plan_volume(layer, node, place)),
        Below(nodes=(node,), media=(*below.media, *(m for part in parts.values() for m in part.above.media))),
        (
            *(check for part in parts.values() for check in part.checks),
            pool_check(layer, below, parts, place),
            DatasetCheck(place.role, f"{place.name}/{VOLUME}", asked, RECORDED),
        ),
        ("the cache of zfs (ARC) keeps the blocks of a zvol from one run to the next: nothing empties it",),
        counted=tuple(disks for part in parts.values() for disks in part.counted),
        stages=(pool_stage(layer, place, up, (LOAD_MODULE,), node),),
    )


def _plan_volume(layer: Zvol, node: Ref, place: Place) -> tuple[Step, ...]:
    """Plan the volume without a reservation: what a pool with parity reserves for one may be more than it has."""
    size = Ref(f"{place.role}.zvol-mib", after="M")
    free = Ref(f"{place.role}.zvol-free")
    ask = planned("zfs", "get", "-Hp", ["-o", "value"], "available", place.name)
    share = planned("numfmt", f"--from-unit={SHARE}", f"--to-unit={100 << 20}", "--round=down", free)
    block = ["-b", str(layer.volblocksize)] if layer.volblocksize else []
    return (
        Step(name=f"room in zfs pool {place.name}", commands=(ask,), binds=free.name),
        Step(name=f"size of {place.name}/{VOLUME}", commands=(share,), binds=size.name),
        Step(
            name=f"zvol {place.name}/{VOLUME}",
            commands=(planned("zfs", "create", "-s", block, ["-V", size], f"{place.name}/{VOLUME}"),),
        ),
        Step(name=f"find zvol {node.name}", commands=_plan_find(place), binds=node.name),
    )


def _plan_find(place: Place) -> tuple[PlannedCommand, ...]:
    """Plan to wait until udev has made the link to the node."""
    link = f"/dev/zvol/{place.name}/{VOLUME}"
    return (
        planned("udevadm", "trigger", "--settle", ["--subsystem-match", "block"], ["--sysname-match", "zd*"]),
        planned("udevadm", "settle", f"--exit-if-exists={link}", f"--timeout={LINK_WAIT_S}"),
        planned("readlink", "--canonicalize-existing", link),
    )


KIND = BlockLayerKind(Zvol, plan_zvol, capabilities=(Capability("block.zvol", "build zvols", NEEDS),))
