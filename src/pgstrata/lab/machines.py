"""The machines of the lab: bring some up, list them, take them down. What `pgstrata lab` does.

With `host: lab` in a campaign, a machine is started for it and gone afterwards. Devices that a stack names
`/dev/disk/by-id/virtio-NAME` become its data disks, sparse files here. Loop devices stay what they are elsewhere:
sparse files on the machine's own root filesystem.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from pgstrata.errors import PreflightError, UsageError
from pgstrata.host.facts.system import read_memory
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Command, CommandFailed, Host, Waiting
from pgstrata.host.ssh import SshHost
from pgstrata.lab.image import Image, build_image
from pgstrata.lab.initrd import READY_LINE
from pgstrata.lab.machine import (
    BOOT_TIMEOUT_S,
    EndedBooting,
    Machine,
    connect_machine,
    free_port,
    load_machine,
    machine_pid,
    owner_gone,
    remove_machine,
    require_tools,
    restart_machine,
    ssh_target,
    start_machine,
    wait_until_up,
)
from pgstrata.lab.qemu import DISK_PREFIX, PROGRAM, Accelerator, DataDisk, MachineSpec, render_probe
from pgstrata.lab.recipe import Recipe
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.hosts.lab import LabMachine
from pgstrata.spec.stack import Stack
from pgstrata.spec.units import render_size

PROBE_TIMEOUT_S = 12.0
"""With KVM the kernel is up within 2 seconds."""


@dataclass(frozen=True)
class Choice:
    """The accelerator that works here; `reason` says why it is not KVM."""

    accelerator: Accelerator
    reason: str = ""

    @property
    def notice(self) -> str:
        """Notice on an emulated processor; empty with KVM."""
        if self.accelerator == "kvm":
            return ""
        return f"the lab runs in software emulation ({self.reason}): its results are functional only"


def choose_accelerator(host: Host, image: Image, directory: str) -> Choice:
    """Boots the image's kernel under KVM with a time limit; remembers the answer for this boot of the host."""
    if host.status("/dev/kvm") is None:
        return Choice("tcg", "there is no /dev/kvm")
    boot = host.read_text("/proc/sys/kernel/random/boot_id").strip()
    note = f"{directory}/accelerator.json"
    known = json.loads(host.read_text(note)) if host.status(note) is not None else {}
    if known.get("boot") == boot and known.get("image") == image.key:
        return Choice(known["accelerator"], known["reason"])
    choice = _probe(host, image, f"{directory}/probe-console.log")
    said = {"boot": boot, "image": image.key, "accelerator": choice.accelerator, "reason": choice.reason}
    host.write_text(note, json.dumps(said))
    return choice


def _first_reason(stderr: str) -> str:
    """The first thing that QEMU complained of, without its own name."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    return lines[0].removeprefix(f"{PROGRAM}: ").removeprefix("error: ") if lines else ""


def _probe(host: Host, image: Image, console: str) -> Choice:
    probe = Command(render_probe(image.kernel, image.initrd, console), timeout_s=PROBE_TIMEOUT_S)
    said = ""
    try:
        ended = host.run(probe, check=False)
        said = _first_reason(ended.stderr)
    except CommandFailed as error:
        if not error.timed_out:
            raise
        said = f"a kernel under KVM was not up after {PROBE_TIMEOUT_S:.0f} s"
    booted = host.status(console) is not None and READY_LINE in host.read_text(console)
    host.remove(console)
    return Choice("kvm") if booted else Choice("tcg", said or "a kernel under KVM ended without a word")


# ---------------------------------------------------------------- machines


def machine_directory(host: Host) -> str:
    """Overlays, data disks, keys and the state of machines that are up."""
    return f"{host.state_directory()}/lab"


Say = Callable[[str], None]

BOOT_ATTEMPTS = 3
"""An emulator that itself crashes while its machine boots was seen (QEMU 7.2: a segmentation fault)."""


@dataclass(frozen=True)
class MachineStatus:
    """A machine with what is true of it at the moment; `pid` is None when it does not run."""

    machine: Machine
    pid: int | None
    orphaned: bool
    """The process it belongs to is gone: `pgstrata clean` removes it."""


def names(name: str, count: int) -> tuple[str, ...]:
    """One machine has the lab's name, several are numbered."""
    return (name,) if count == 1 else tuple(f"{name}-{i}" for i in range(1, count + 1))


def up(
    host: Host,
    image: Image,
    specs: Sequence[MachineSpec],
    *,
    say: Say,
    owned: bool = False,
    timeout_s: float = BOOT_TIMEOUT_S,
) -> tuple[Machine, ...]:
    """Starts machines and waits until all answer; several get a private network. None is left when one fails."""
    require_tools(host)
    parent = machine_directory(host)
    host.make_directory(parent, mode=0o700)
    choice = choose_accelerator(host, image, parent)
    if choice.notice:
        say(choice.notice)
    started: list[Machine] = []
    try:
        for spec in _networked(specs):
            started.append(start_machine(host, image, spec, parent=parent, accelerator=choice.accelerator, owned=owned))
        _wait_for_all(host, image, started, choice, say, timeout_s)
    except BaseException:
        for machine in started:
            remove_machine(host, machine)
        raise
    return tuple(started)


def _networked(specs: Sequence[MachineSpec]) -> tuple[MachineSpec, ...]:
    if len(specs) == 1:
        return tuple(specs)
    port = free_port()
    return tuple(spec.model_copy(update={"index": i, "group_port": port}) for i, spec in enumerate(specs, start=1))


def _wait_for_all(
    host: Host, image: Image, machines: Sequence[Machine], choice: Choice, say: Say, timeout_s: float
) -> None:
    began = time.monotonic()
    for machine in machines:
        _wait_for(host, image, machine, say, timeout_s)
        say(f"lab machine {machine.name} is up after {time.monotonic() - began:.1f} s ({choice.accelerator})")


def _wait_for(host: Host, image: Image, machine: Machine, say: Say, timeout_s: float) -> None:
    for attempt in range(1, BOOT_ATTEMPTS + 1):
        try:
            if attempt == 1:
                wait_until_up(host, machine, timeout_s)
            else:
                restart_machine(host, image, machine, timeout_s)
        except EndedBooting as error:
            removed = host.status(machine.directory) is None
            if removed or attempt == BOOT_ATTEMPTS:
                raise
            say(f"{error.message}; it is started again")
        else:
            return


def status(host: Host) -> tuple[MachineStatus, ...]:
    """Every machine of this user, running or not."""
    parent = machine_directory(host)
    if host.status(parent) is None:
        return ()
    found = [load_machine(host, f"{parent}/{name}") for name in host.list_directory(parent)]
    return tuple(
        MachineStatus(machine, machine_pid(host, machine), owner_gone(machine))
        for machine in found
        if machine is not None
    )


def find(host: Host, name: str) -> Machine:
    """The running machine of that name; PreflightError when there is none."""
    for found in status(host):
        if found.machine.name == name:
            if found.pid is None:
                raise PreflightError(f"lab machine {name} does not run", hint=f"pgstrata lab down {name}")
            return found.machine
    raise PreflightError(f"there is no lab machine {name}", hint="pgstrata lab up")


def down(host: Host, name: str | None = None) -> tuple[str, ...]:
    """Ends one machine, or all without a name, and removes what they left; gives their names.

    UsageError when there is none of that name.
    """
    chosen = [found.machine for found in status(host) if name in (None, found.machine.name)]
    if name is not None and not chosen:
        raise UsageError(f"there is no lab machine {name}", hint="pgstrata lab status")
    for machine in chosen:
        remove_machine(host, machine)
    return tuple(machine.name for machine in chosen)


def clean(host: Host) -> tuple[str, ...]:
    """Ends the machines whose owner was killed and those that ended by themselves; a line for each.

    One that another process owns or is just starting is left alone.
    """
    lines = []
    for found in status(host):
        if found.orphaned or _has_ended(host, found):
            remove_machine(host, found.machine)
            why = "its run is gone" if found.orphaned else "it had ended"
            lines.append(f"removed lab machine {found.machine.name}: {why}")
    return tuple(lines)


def _has_ended(host: Host, found: MachineStatus) -> bool:
    """True if it ran once and does no more; QEMU writes its pid file when it has started."""
    began = host.status(f"{found.machine.directory}/qemu.pid") is not None
    return began and found.pid is None and found.machine.owner_pid is None


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
        for line in clean(here):
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
        (machine,) = up(here, image, [spec], say=say, owned=True)
        try:
            host = LabHost(here, image, machine)
            try:
                yield host
            finally:
                host.close()
        finally:
            down(here, machine.name)
    finally:
        here.close()


def running_host(name: str) -> SshHost:
    """A machine that `pgstrata lab up` left running, as a host; PreflightError when there is none of that name."""
    here = LocalHost()
    try:
        return connect_machine(find(here, name))
    finally:
        here.close()
