"""LVM: all devices below become PVs of one volume group, which contains the logical volume in use.

A cache is a volume of its own on further PVs of the group (lvmcache(7), cachevol). Sizes and layout are read from the
JSON output of `lvs` and `pvs`, caches from the device mapper. Tested with LVM 2.03.16.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from pgstrata.errors import parser_of
from pgstrata.host.capabilities import Capability, everywhere, kernel_has, named, program
from pgstrata.host.facts.tools import driver_available, module_available
from pgstrata.host.protocol import Host, command
from pgstrata.spec.layers.lvm import Lvm
from pgstrata.stack.block.dm import Target, mapped_name, read_target
from pgstrata.stack.kind import Below, BlockLayerKind, Geometry, PlannedLayer, plan_device
from pgstrata.stack.place import SECTOR_BYTES, Place
from pgstrata.stack.step import Argument, Attested, FreeName, PlannedCommand, Ref, Stage, Step, planned, resolve, told
from pgstrata.stack.undo import Undo
from pgstrata.stack.undoing import ask_tool, blank_member, list_members, require_ours

VOLUME = "volume"
POOL = "pool"
CACHE = "fast"
ORIGIN = f"[{VOLUME}_corig]", f"[{VOLUME}_wcorig]"
"""The name of lvs for the volume below its cache."""
DEFAULT_STRIPE_BYTES = 64 * 1024
"""LVM's default (allocation/stripesize in lvm.conf), passed explicitly so that it is known."""
DEFAULT_CACHE_MODE = "writethrough"
DEFAULT_CHUNK_BYTES = 64 * 1024
"""LVM's defaults (lvmcache(7)), passed explicitly."""
WRITECACHE_BLOCK_BYTES = 4096
SNAPSHOT_SHARE = 40
"""Percentage of the group that all snapshots together may fill with overwritten data."""
THIN_SHARE = 90
"""Percentage of the group for the thin pool's data; the rest is for its metadata and the metadata spare."""
LVM_TIMEOUT_S = 120.0


def plan_lvm(layer: Lvm, below: Below, place: Place) -> PlannedLayer:
    """Plan one volume group over all nodes below and one logical volume; binds `ROLE.lvm`."""
    node = Ref(f"{place.role}.lvm")
    stripe_bytes = layer.stripe_size or DEFAULT_STRIPE_BYTES
    own = {name: plan_device(device, place.beside(f"lvm.{name}")) for name, device in layer.own_devices.items()}
    further = tuple(part.above for part in own.values())
    fast = tuple(node for part in further for node in part.nodes)
    steps = (
        *(step for part in own.values() for step in part.steps),
        _plan_group((below, *further), place),
        *_plan_volume(layer, stripe_bytes, below, place),
        *(_plan_cache(layer, name, part.above, place) for name, part in own.items()),
        *(_plan_snapshot(layer, index, place) for index in range(1, layer.snapshots + 1)),
        _plan_find(node, place),
    )
    media = (*below.media, *(medium for part in further for medium in part.media))
    above = Below(nodes=(node,), media=media, geometry=_geometry(layer, stripe_bytes, below))
    return PlannedLayer(
        steps,
        above,
        (
            *(check for part in own.values() for check in part.checks),
            LvmCheck(place.role, place.name, layer, stripe_bytes, below.nodes, fast),
        ),
        _notes(layer),
        counted=tuple(disks for part in own.values() for disks in part.counted),
        stages=(_plan_again(node, (*below.nodes, *fast), place),),
    )


def snapshot_name(index: int) -> str:
    """Return the snapshot's name; LVM reserves names that start with `snapshot`."""
    return f"kept{index}"


def pv_uuid(place: Place, index: int) -> str:
    """Return the UUID of a PV on a real device, chosen before creation so that the undo recognises our PVs."""
    text = hashlib.sha256(f"{place.name}:{index}".encode()).hexdigest()
    ends = (0, 6, 10, 14, 18, 22, 26, 32)
    return "-".join(text[start:end] for start, end in pairwise(ends))


def _plan_group(parts: tuple[Below, ...], place: Place) -> Step:
    real = [node for part in parts for node, _ in zip(part.nodes, part.ids, strict=False)]
    uuids = tuple(pv_uuid(place, index) for index in range(len(real)))
    # of loop files, vgcreate makes the PVs itself; one that is left without its group goes with its file
    pvs = tuple(
        planned("pvcreate", "--yes", "--quiet", "--norestorefile", ["--uuid", uuid], node, timeout_s=LVM_TIMEOUT_S)
        for uuid, node in zip(uuids, real, strict=True)
    )
    nodes = [node for part in parts for node in part.nodes]
    ids = tuple(id_ for part in parts for id_ in part.ids)
    create = planned("vgcreate", "--yes", "--quiet", place.name, nodes, timeout_s=LVM_TIMEOUT_S)
    return Step(
        name=f"volume group {place.name}",
        commands=(*pvs, create),
        undo=(RemoveVg(vg=place.name, devices=ids, pv_uuids=uuids),),
        requires=(FreeName("volume group", place.name, ("vgs", place.name)),),
    )


def _plan_volume(layer: Lvm, stripe_bytes: int, below: Below, place: Place) -> tuple[Step, ...]:
    share, count = 100 - SNAPSHOT_SHARE if layer.snapshots else 100, len(below.nodes)
    if layer.layout == "thin":
        return _plan_thin(layer, place)
    kind = ["--type", "linear"]
    if layer.layout == "striped":
        kind = ["--type", "striped", "--stripes", str(count), "--stripesize", f"{stripe_bytes}b"]
    # beside a cache, the volume has the PVs below it alone
    size, on = (f"{share}%PVS", below.nodes) if layer.own_devices else (f"{share}%VG", ())
    create = _lvcreate(kind, ["--extents", size], ["--name", VOLUME], place.name, on)
    return (Step(name=f"logical volume for {place.role}", commands=(create,)),)


def _plan_thin(layer: Lvm, place: Place) -> tuple[Step, ...]:
    """Plan a thin volume slightly smaller than its pool, so that the volume is full before the pool is."""
    size = Ref(f"{place.role}.thin-pool-extents")
    pool = _lvcreate(["--type", "thin-pool"], ["--extents", f"{THIN_SHARE}%VG"], ["--name", POOL], place.name)
    options = ["--noheadings", "--units", "b", "--nosuffix", "--options", "lv_size"]
    ask = planned("lvs", options, f"{place.name}/{POOL}", timeout_s=LVM_TIMEOUT_S)
    virtual = Ref(size.name, after="b")
    volume = _lvcreate(["--type", "thin"], ["--virtualsize", virtual], ["--name", VOLUME], f"{place.name}/{POOL}")
    return (
        Step(name=f"thin pool for {place.role}", commands=(pool, ask), binds=size.name),
        Step(name=f"thin volume for {place.role}", commands=(volume,)),
    )


def _lvcreate(
    kind: list[str], size: list[Argument], name: list[str], where: str, on: tuple[Argument, ...] = ()
) -> PlannedCommand:
    wipe = ["--wipesignatures", "y"] if "thin-pool" not in kind else []
    return planned("lvcreate", "--yes", "--quiet", wipe, kind, size, name, where, on, timeout_s=LVM_TIMEOUT_S)


def _plan_cache(layer: Lvm, kind: str, fast: Below, place: Place) -> Step:
    """Plan a volume over the whole of the fast devices, and put it before the main one."""
    create = _lvcreate(["--type", "linear"], ["--extents", "100%PVS"], ["--name", CACHE], place.name, fast.nodes)
    settings = [f"{name}={value}" for name, value in layer.cache_settings.items()]
    if kind == "cache":
        chunk = f"{layer.cache_chunk or DEFAULT_CHUNK_BYTES}b"
        options = ["--cachemode", layer.cache_mode or DEFAULT_CACHE_MODE, "--chunksize", chunk]
    else:
        options, settings = [], [f"block_size={WRITECACHE_BLOCK_BYTES}", *settings]
    options += ["--cachesettings", " ".join(settings)] if settings else []
    volume, given = f"{place.name}/{VOLUME}", ["--cachevol", CACHE, *options]
    convert = planned("lvconvert", "--yes", "--quiet", ["--type", kind], given, volume, timeout_s=LVM_TIMEOUT_S)
    # lvconvert attaches no writecache that is active
    rest = planned("lvchange", ["--activate", "n"], f"{place.name}/{CACHE}", timeout_s=LVM_TIMEOUT_S)
    return Step(name=f"{kind} of {volume}", commands=(create, *((rest,) if kind == "writecache" else ()), convert))


def _plan_snapshot(layer: Lvm, index: int, place: Place) -> Step:
    # a thin snapshot takes its space from the pool and is skipped at activation unless told otherwise (lvmthin(7))
    size = [] if layer.layout == "thin" else ["--extents", f"{SNAPSHOT_SHARE // layer.snapshots}%VG"]
    skip = ["--setactivationskip", "n"] if layer.layout == "thin" else []
    name = ["--name", snapshot_name(index)]
    volume = f"{place.name}/{VOLUME}"
    create = planned("lvcreate", "--yes", "--quiet", "--snapshot", size, skip, name, volume, timeout_s=LVM_TIMEOUT_S)
    return Step(name=f"snapshot {index} of {volume}", commands=(create,))


def _plan_find(node: Ref, place: Place) -> Step:
    link = f"/dev/{place.name}/{VOLUME}"
    return Step(
        name=f"find logical volume {node.name}",
        commands=(planned("readlink", "--canonicalize-existing", link),),
        binds=node.name,
    )


def _plan_again(node: Ref, nodes: tuple[Argument, ...], place: Place) -> Stage:
    """Plan the restart; the group is searched only on its own devices, as others may be copies. `--devices` needs
    2.03.12."""
    only = [word for device in nodes for word in ("--devices", device)]
    on, off = (
        planned("vgchange", only, ["--activate", way], place.name, timeout_s=LVM_TIMEOUT_S) for way in ("y", "n")
    )
    return Stage(
        name=f"activate volume group {place.name}",
        up=(on, *_plan_find(node, place).commands),
        down=(off,),
        binds=node.name,
        alone=True,
        undo=(RemoveVg(vg=place.name),),
    )


def _geometry(layer: Lvm, stripe_bytes: int, below: Below) -> Geometry | None:
    """Return the stripe geometry; a linear volume passes on the geometry below, to which LVM aligns data
    (pvcreate(8))."""
    if layer.layout == "striped":
        return Geometry(stripe_bytes, len(below.nodes))
    return below.geometry if layer.layout == "linear" else None


def _notes(layer: Lvm) -> tuple[str, ...]:
    if not layer.snapshots or layer.layout == "thin":
        return ()
    share = SNAPSHOT_SHARE // layer.snapshots
    return (
        f"each of {layer.snapshots} snapshots has {share} % of the group for overwritten data and becomes invalid "
        "when that is full",
    )


@dataclass(frozen=True)
class LogicalVolume:
    """One segment of a logical volume, as `lvs` lists it."""

    name: str
    segment_type: str
    stripes: int
    stripe_bytes: int
    size_bytes: int
    origin: str
    pool: str
    attributes: str

    @property
    def usable(self) -> bool:
        """True if active and not an invalidated snapshot (lvs(8): the fifth character is the state)."""
        return self.attributes[4] == "a"


LVS_FIELDS = "lv_name,segtype,stripes,stripe_size,lv_size,origin,pool_lv,lv_attr"


@parser_of("lvs")
def parse_lvs(text: str) -> tuple[LogicalVolume, ...]:
    """Parse `lvs --reportformat json --units b --nosuffix --options LVS_FIELDS`: one row per segment."""
    rows = [row for report in json.loads(text)["report"] for row in report["lv"]]
    return tuple(
        LogicalVolume(
            name=row["lv_name"],
            segment_type=row["segtype"],
            stripes=int(row["stripes"]),
            stripe_bytes=int(row["stripe_size"]),
            size_bytes=int(row["lv_size"]),
            origin=row["origin"],
            pool=row["pool_lv"],
            attributes=row["lv_attr"],
        )
        for row in rows
    )


@parser_of("pvs")
def parse_pvs(text: str) -> tuple[str, ...]:
    """Parse the device names of `pvs --reportformat json --options pv_name`."""
    return tuple(row["pv_name"] for report in json.loads(text)["report"] for row in report["pv"])


def list_pvs(host: Host, vg: str) -> tuple[str, ...]:
    """List the PVs of a volume group; empty when the group does not exist."""
    options = ["--reportformat", "json", "--options", "pv_name", "--select", f"vg_name={vg}"]
    return parse_pvs(host.run(command("pvs", options, timeout_s=LVM_TIMEOUT_S)).stdout)


@dataclass(frozen=True)
class LvmCheck:
    """Checks that the group uses its configured devices, and that its volume has the configured layout and cache."""

    role: str
    vg: str
    layer: Lvm
    stripe_bytes: int
    nodes: tuple[Argument, ...]
    """PVs below the volume."""
    fast: tuple[Argument, ...] = ()
    """PVs of its cache."""

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        options = ["--reportformat", "json", "--units", "b", "--nosuffix", "--options", LVS_FIELDS]
        hidden = ["--all"] if self.layer.own_devices else []
        printed = host.run(command("lvs", hidden, options, self.vg, timeout_s=LVM_TIMEOUT_S), check=False)
        if printed.exit_code != 0:
            return (Attested(f"{self.role} lvm volume group", self.vg, "missing"),)
        found = host.run(command("readlink", "--canonicalize", list_pvs(host, self.vg))).stdout.split()
        wanted = [resolve(node, bindings) for node in (*self.nodes, *self.fast)]
        pvs = Attested(f"{self.role} lvm pvs", " ".join(sorted(wanted)), " ".join(sorted(found)))
        return (pvs, *self.compare(parse_lvs(printed.stdout)), *self._attest_cache(host))

    def _attest_cache(self, host: Host) -> tuple[Attested, ...]:
        if not self.layer.own_devices:
            return ()
        name = mapped_name(self.vg, VOLUME)
        table, status = (read_target(host, what, name) for what in ("table", "status"))
        return self.compare_cache(table, status)

    def compare_cache(self, table: Target, status: Target) -> tuple[Attested, ...]:
        """Compare the cache with the kernel's: cache.rst and writecache.rst of its documentation on the device mapper.

        Of a dm-cache, `table` has block size, number of features, features, policy; `status` the number of dirty blocks
        in its eleventh field and at its end whether metadata can be written.
        """
        (kind,) = self.layer.own_devices
        what, words = f"{self.role} lvm {kind}", status.words
        rows = [Attested(f"{self.role} lvm cached by", kind, table.kind)]
        rows += [
            Attested(f"{what} {name}", str(value), table.after(name))
            for name, value in self.layer.cache_settings.items()
        ]
        if table.kind != kind:
            return (rows[0],)
        if kind == "writecache":
            block_bytes = table.words[3]
            return (
                *rows,
                Attested(f"{what} block_bytes", str(WRITECACHE_BLOCK_BYTES), block_bytes),
                Attested(f"{what} errors", "0", words[0]),
            )
        chunk, mode = self.layer.cache_chunk or DEFAULT_CHUNK_BYTES, self.layer.cache_mode or DEFAULT_CACHE_MODE
        features = words[12 : 12 + int(words[11])]
        modes = [word for word in features if word in ("writethrough", "writeback", "passthrough")]
        return (
            *rows,
            Attested(f"{what} mode", mode, " ".join(modes) or "missing"),
            Attested(f"{what} chunk_bytes", str(chunk), str(int(words[2]) * SECTOR_BYTES)),
            Attested(f"{what} state", "rw -", " ".join(words[-2:])),
            told(f"{what} blocks used", words[3]),
        )

    def compare(self, volumes: tuple[LogicalVolume, ...]) -> tuple[Attested, ...]:
        """Compare configured with actual values. An origin of snapshots is listed with its own segment type."""
        layer = self.layer
        segments = [v for v in volumes if v.name in (ORIGIN if layer.own_devices else (VOLUME,))]
        striped = layer.layout == "striped"
        rows = [
            ("layout", layer.layout, _joined(v.segment_type for v in segments)),
            ("stripes", str(len(self.nodes) if striped else 1), _joined(str(v.stripes) for v in segments)),
        ]
        if layer.layout == "thin":
            rows = [rows[0], ("pool", POOL, _joined(v.pool for v in segments))]
        if striped:
            rows.append(("stripe_bytes", str(self.stripe_bytes), _joined(str(v.stripe_bytes) for v in segments)))
        kept = {v.name for v in volumes if v.origin == VOLUME and v.usable}
        rows.append(("snapshots", str(layer.snapshots), str(len(kept))))
        size = told(f"{self.role} lvm size_bytes", _joined(str(v.size_bytes) for v in segments))
        return (*(Attested(f"{self.role} lvm {what}", want, got) for what, want, got in rows), size)


def _joined(values: Iterable[str]) -> str:
    """Join the distinct values of several segments; `missing` without segments."""
    return " ".join(dict.fromkeys(values)) or "missing"


class RemoveVg(Undo):
    """Remove a volume group and its PVs; `devices` are the ids of real ones, which may be PVs without a group.

    Such a PV is ours when its UUID is in `pv_uuids`, which are chosen before creation.
    """

    kind: Literal["remove_vg"] = "remove_vg"
    vg: str
    devices: tuple[str, ...] = ()
    pv_uuids: tuple[str, ...] = ()


def _remove_vg(host: Host, undo: RemoveVg) -> str:
    require_ours(undo.vg)
    found = ask_tool(host, "pvs", "--noheadings", ["--options", "pv_name"], ["--select", f"vg_name={undo.vg}"])
    pvs = found.stdout.split()
    if pvs:
        host.run(command("vgremove", "--force", "--force", "--yes", undo.vg))
    # a kill between the two leaves PVs that belong to no group
    real = dict(list_members(host, undo.devices, "LVM2_member"))
    ours = [node for node, signatures in real.items() if any(s.uuid in undo.pv_uuids for s in signatures)]
    others = [node for node in real if node not in (*ours, *pvs)]
    pvs += [node for node in ours if node not in pvs]
    done = [f"left {node} alone: it has become another PV" for node in others]
    if pvs:
        host.run(command("pvremove", "--yes", pvs))
        for node in set(pvs) & real.keys():
            blank_member(host, node)
        done.append(f"removed volume group {undo.vg}")
    return "; ".join(done)


_THIN = "thin-provisioning-tools"
_THIN_TOOLS = named(_THIN, "device-mapper-persistent-data", _THIN, _THIN)

KIND = BlockLayerKind(
    Lvm,
    plan_lvm,
    capabilities=(
        Capability(
            "block.lvm",
            "build LVM volumes",
            (
                kernel_has(lambda host: driver_available(host, "device-mapper", "dm-mod"), "device mapper"),
                program("lvm", everywhere("lvm2")),
            ),
        ),
        Capability(
            "block.lvm.thin",
            "build LVM thin pools",
            (
                kernel_has(lambda host: module_available(host, "dm-thin-pool"), "dm-thin-pool"),
                program("thin_check", _THIN_TOOLS),
            ),
        ),
        Capability(
            "block.lvm.cache",
            "build LVM caches",
            (
                kernel_has(lambda host: module_available(host, "dm-cache-smq"), "dm-cache-smq"),
                program("cache_check", _THIN_TOOLS),
            ),
        ),
        Capability(
            "block.lvm.writecache",
            "build LVM writecaches",
            (kernel_has(lambda host: module_available(host, "dm-writecache"), "dm-writecache"),),
        ),
    ),
    undos={RemoveVg: _remove_vg},
)
