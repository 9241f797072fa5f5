"""`host: lab` in a campaign: a machine that is started for it and gone afterwards.

Devices that a stack names `/dev/disk/by-id/virtio-NAME` become data disks of the machine, sparse files here. Loop
devices stay what they are elsewhere: sparse files on the machine's own root filesystem.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from pgstrata.errors import PreflightError
from pgstrata.host.base import LocalHost
from pgstrata.host.facts.system import read_memory
from pgstrata.host.protocol import Host, Waiting
from pgstrata.host.ssh import SshHost
from pgstrata.lab import machines
from pgstrata.lab.image import Image, build_image
from pgstrata.lab.machine import (
    Machine,
    connect_machine,
    machine_pid,
    require_tools,
    restart_machine,
    ssh_target,
)
from pgstrata.lab.qemu import DISK_PREFIX, DataDisk, MachineSpec
from pgstrata.lab.recipe import Recipe
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.hosts.lab import LabMachine
from pgstrata.spec.stack import Stack
from pgstrata.spec.units import render_size

Say = Callable[[str], None]


class LabHost(SshHost):
    """A lab machine that is started again when it has died: its disks are still there, with the undo journal."""

    def __init__(self, here: LocalHost, image: Image, machine: Machine) -> None:
        self._here = here
        self._image = image
        self._machine = machine
        super().__init__(
            ssh_target(machine), name=f"lab/{machine.name}", kind=machine.kind, options=machine.ssh_options
        )

    def reconnect(self, timeout_s: float = 300.0) -> bool:
        if machine_pid(self._here, self._machine) is None:
            restart_machine(self._here, self._image, self._machine)
        return super().reconnect(timeout_s)


def plan_disks(stacks: tuple[Stack, ...], lab: LabMachine) -> tuple[DataDisk, ...]:
    """A data disk for each device that the stacks name, and for each that `lab` describes."""
    ids = [id_ for stack in stacks for id_ in stack.device_ids]
    names = [id_.removeprefix(DISK_PREFIX) for id_ in ids if id_.startswith(DISK_PREFIX)]
    disks = []
    for name in dict.fromkeys([*names, *lab.disks]):
        given = lab.disks.get(name)
        disks.append(
            DataDisk(
                serial=name,
                size_bytes=(given.size if given else None) or lab.disk_size,
                iops=given.iops if given else None,
                bytes_per_s=given.bandwidth if given else None,
                media=given.media if given else None,
                definition=given.definition if given else None,
                stretch=given.stretch if given else 1.0,
                timed=given.timed if given else "always",
            )
        )
    return tuple(disks)


def check_memory(host: Host, spec: MachineSpec) -> None:
    """PreflightError unless a machine and what its modelled disks can come to hold fit into the memory of this host."""
    disks = sum(disk.size_bytes for disk in spec.modelled.values())
    if not disks:
        return
    needed, available = disks + spec.memory_bytes, read_memory(host).get("MemAvailable", 0)
    if needed > available:
        raise PreflightError(
            f"the lab machine takes {render_size(spec.memory_bytes)} of memory and its modelled disks up to "
            f"{render_size(disks)}, and {render_size(available)} are available on {host.name}",
            hint="smaller disks (lab: disks: {NAME: {size: 1GiB}}), or less lab: memory",
        )


@contextmanager
def lab_host(campaign: Campaign, *, say: Say, waiting: Waiting = nullcontext) -> Iterator[SshHost]:
    """A machine with what the campaign needs, for as long as the block lasts; the image is built when there is none.

    PreflightError when the lab cannot be had here. A machine whose run was killed is removed by `pgstrata clean` and
    by the next run. Building and booting happen inside `waiting()`.
    """
    here = LocalHost()
    here.interruptible(waiting)
    try:
        require_tools(here)
        for line in machines.clean(here):
            say(line)
        image = build_image(here, Recipe(), say=say)
        lab = campaign.lab
        spec = MachineSpec(
            name=f"run-{os.getpid()}",
            cpus=lab.cpus,
            memory_bytes=lab.memory,
            disks=plan_disks(campaign.stacks, lab),
        )
        check_memory(here, spec)
        (machine,) = machines.up(here, image, [spec], say=say, owned=True)
        try:
            host = LabHost(here, image, machine)
            try:
                yield host
            finally:
                host.close()
        finally:
            machines.down(here, machine.name)
    finally:
        here.close()


def running_host(name: str) -> SshHost:
    """A machine that `pgstrata lab up` left running, as a host; PreflightError when there is none of that name."""
    here = LocalHost()
    try:
        return connect_machine(machines.find(here, name))
    finally:
        here.close()
