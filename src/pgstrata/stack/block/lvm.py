"""LVM: all devices below become PVs of one volume group, which contains the logical volume in use.

Sizes and layout are read from the JSON output of `lvs` and `pvs`. Tested with LVM 2.03.16.
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
from pgstrata.stack.kind import Below, BlockLayerKind, Geometry, PlannedLayer
from pgstrata.stack.place import Place
from pgstrata.stack.preconditions import FreeName
from pgstrata.stack.stage import Stage
from pgstrata.stack.step import Argument, Attested, PlannedCommand, Ref, Step, planned, resolve, told
from pgstrata.stack.undo import Undo
from pgstrata.stack.undoing import ask_tool, blank_member, list_members, require_ours

VOLUME = "volume"
POOL = "pool"
DEFAULT_STRIPE_BYTES = 64 * 1024
"""LVM's default (allocation/stripesize in lvm.conf), passed explicitly so that it is known."""
SNAPSHOT_SHARE = 40
"""Percentage of the group that all snapshots together may fill with overwritten data."""
THIN_SHARE = 90
"""Percentage of the group for the thin pool's data; the rest is for its metadata and the metadata spare."""
LVM_TIMEOUT_S = 120.0


def plan_lvm(layer: Lvm, below: Below, place: Place) -> PlannedLayer:
    """Plan one volume group over all nodes below and one logical volume; binds `ROLE.lvm`."""
    node = Ref(f"{place.role}.lvm")
    stripe_bytes = layer.stripe_size or DEFAULT_STRIPE_BYTES
    steps = (
        _plan_group(below, place),
        *_plan_volume(layer, stripe_bytes, len(below.nodes), place),
        *(_plan_snapshot(layer, index, place) for index in range(1, layer.snapshots + 1)),
        _plan_find(node, place),
    )
    above = Below(nodes=(node,), media=below.media, geometry=_geometry(layer, stripe_bytes, below))
    return PlannedLayer(
        steps,
        above,
        (LvmCheck(place.role, place.name, layer, stripe_bytes, below.nodes),),
        _notes(layer),
        stages=(_plan_again(node, below, place),),
    )


def snapshot_name(index: int) -> str:
    """Return the snapshot's name; LVM reserves names that start with `snapshot`."""
    return f"kept{index}"


def pv_uuid(place: Place, index: int) -> str:
    """Return the UUID of a PV on a real device, chosen before creation so that the undo recognises our PVs."""
    text = hashlib.sha256(f"{place.name}:{index}".encode()).hexdigest()
    ends = (0, 6, 10, 14, 18, 22, 26, 32)
    return "-".join(text[start:end] for start, end in pairwise(ends))


def _plan_group(below: Below, place: Place) -> Step:
    uuids = tuple(pv_uuid(place, index) for index in range(len(below.ids)))
    # of loop files, vgcreate makes the PVs itself; one that is left without its group goes with its file
    pvs = tuple(
        planned("pvcreate", "--yes", "--quiet", "--norestorefile", ["--uuid", uuid], node, timeout_s=LVM_TIMEOUT_S)
        for uuid, node in zip(uuids, below.nodes, strict=False)
    )
    create = planned("vgcreate", "--yes", "--quiet", place.name, below.nodes, timeout_s=LVM_TIMEOUT_S)
    return Step(
        name=f"volume group {place.name}",
        commands=(*pvs, create),
        undo=(RemoveVg(vg=place.name, devices=below.ids, pv_uuids=uuids),),
        requires=(FreeName("volume group", place.name, ("vgs", place.name)),),
    )


def _plan_volume(layer: Lvm, stripe_bytes: int, count: int, place: Place) -> tuple[Step, ...]:
    share = 100 - SNAPSHOT_SHARE if layer.snapshots else 100
    if layer.layout == "thin":
        return _plan_thin(layer, place)
    kind = ["--type", "linear"]
    if layer.layout == "striped":
        kind = ["--type", "striped", "--stripes", str(count), "--stripesize", f"{stripe_bytes}b"]
    create = _lvcreate(kind, ["--extents", f"{share}%VG"], ["--name", VOLUME], place.name)
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


def _lvcreate(kind: list[str], size: list[Argument], name: list[str], where: str) -> PlannedCommand:
    wipe = ["--wipesignatures", "y"] if "thin-pool" not in kind else []
    return planned("lvcreate", "--yes", "--quiet", wipe, kind, size, name, where, timeout_s=LVM_TIMEOUT_S)


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


def _plan_again(node: Ref, below: Below, place: Place) -> Stage:
    """Plan the restart; the group is searched only on its own devices, as others may be copies. `--devices` needs
    2.03.12."""
    only = [word for device in below.nodes for word in ("--devices", device)]
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
    """Checks that the group uses its configured devices and that its volume has the configured layout."""

    role: str
    vg: str
    layer: Lvm
    stripe_bytes: int
    nodes: tuple[Argument, ...]

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        options = ["--reportformat", "json", "--units", "b", "--nosuffix", "--options", LVS_FIELDS]
        printed = host.run(command("lvs", options, self.vg, timeout_s=LVM_TIMEOUT_S), check=False)
        if printed.exit_code != 0:
            return (Attested(f"{self.role} lvm volume group", self.vg, "missing"),)
        found = host.run(command("readlink", "--canonicalize", list_pvs(host, self.vg))).stdout.split()
        wanted = [resolve(node, bindings) for node in self.nodes]
        pvs = Attested(f"{self.role} lvm pvs", " ".join(sorted(wanted)), " ".join(sorted(found)))
        return (pvs, *self.compare(parse_lvs(printed.stdout)))

    def compare(self, volumes: tuple[LogicalVolume, ...]) -> tuple[Attested, ...]:
        """Compare configured with actual values. An origin of snapshots is listed with its own segment type."""
        segments = [v for v in volumes if v.name == VOLUME]
        layer = self.layer
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
                program("thin_check", named(_THIN, "device-mapper-persistent-data", _THIN)),
            ),
        ),
    ),
    undos={RemoveVg: _remove_vg},
)
