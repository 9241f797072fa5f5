"""Real block devices, named by a stable id; old signatures are wiped only after the device was inspected again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pgstrata.host.facts.modelled import ask_modelled, switch_modelled
from pgstrata.host.protocol import Host
from pgstrata.spec.layers.devices import DiskDevice
from pgstrata.stack.disk_counters import AskedMedium, CountedDisks, MediaCheck, TimingSwitch, parse_statistics
from pgstrata.stack.kind import Below, Check, DeviceKind, PlannedLayer
from pgstrata.stack.place import Place
from pgstrata.stack.safety import find_nodes, parse_device_id
from pgstrata.stack.step import Attested, Erased, PlannedCommand, Ref, Step, planned
from pgstrata.stack.undo import Undo, WipeDevice

WIPE_TIMEOUT_S = 120.0


def plan_disk(device: DiskDevice, place: Place) -> PlannedLayer:
    """Find each device and wipe its signatures; binds `ROLE.0`, `ROLE.1`, ..."""
    nodes = tuple(Ref(f"{place.role}.{i}") for i in range(device.count))
    steps = tuple(step for id_, node in zip(device.ids, nodes, strict=True) for step in _plan_one(id_, node))
    checks: tuple[Check, ...] = (DiskCheck(nodes, device.ids),)
    modelled = tuple(
        (node, place.modelled[id_]) for id_, node in zip(device.ids, nodes, strict=True) if id_ in place.modelled
    )
    if not modelled:
        return PlannedLayer(steps, Below(nodes=nodes, media=nodes, ids=device.ids), checks)
    refs, names = tuple(node for node, _ in modelled), tuple(disk.name for _, disk in modelled)
    asking = PlannedCommand.of(ask_modelled())
    in_runs = tuple(disk.name for _, disk in modelled if disk.timed == "runs")
    on, off = (PlannedCommand.of(switch_modelled(to)) for to in ("on", "off"))
    switch = TimingSwitch(in_runs, on, off, HostTimingOff()) if in_runs else None
    counted = CountedDisks(tuple(ref.name for ref in refs), asking, parse_statistics, names, switch)
    asked = tuple(AskedMedium(disk.model, disk.stretch, disk.parameters) for _, disk in modelled)
    checks += (MediaCheck(refs, counted, asked, sparing=True),)
    return PlannedLayer(steps, Below(nodes=nodes, media=nodes, ids=device.ids), checks, counted=(counted,))


def _plan_one(id_: str, node: Ref) -> tuple[Step, ...]:
    find = Step(f"find device {node.name}", (PlannedCommand(parse_device_id(id_).find_argv),), binds=node.name)
    wipe = Step(
        name=f"wipe signatures of {id_}",
        # --force, because the device is held exclusively while this runs, which keeps wipefs off like everybody else
        commands=(planned("wipefs", "--all", "--force", node, timeout_s=WIPE_TIMEOUT_S),),
        undo=(WipeDevice(id=id_),),
        erases=(Erased(id_, node),),
    )
    return find, wipe


@dataclass(frozen=True)
class DiskCheck:
    """Checks that each id still leads to the node that was built on."""

    nodes: tuple[Ref, ...]
    ids: tuple[str, ...]

    def attest(self, host: Host, bindings: Mapping[str, str]) -> tuple[Attested, ...]:
        found = find_nodes(host, self.ids)
        return tuple(
            Attested(f"disk {ref.name} node", ref.resolve(bindings), found[id_])
            for ref, id_ in zip(self.nodes, self.ids, strict=True)
        )


class HostTimingOff(Undo):
    """Turns off medium timing of host-modelled disks that are timed only during runs."""

    kind: Literal["host_timing_off"] = "host_timing_off"


def _host_timing_off(host: Host, undo: HostTimingOff) -> str:
    """Return nothing to report: the disks are wiped next."""
    host.run(switch_modelled("off"), check=False)
    return ""


KIND = DeviceKind(DiskDevice, plan_disk, undos={HostTimingOff: _host_timing_off})
