"""The command line of QEMU for a lab machine: a pure function of what the machine is to have.

Options: https://www.qemu.org/docs/master/system/invocation.html
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from pgstrata.host.delivery import OWN
from pgstrata.host.facts.modelled import ADDRESS, PORT, SWITCH_PORTS
from pgstrata.lab.initrd import ROOT_SERIAL
from pgstrata.lab.recipe import EMULATION_ARGUMENTS, KERNEL_ARGUMENTS
from pgstrata.spec.hosts.lab import MACHINE_NAME
from pgstrata.spec.layers.media import Timed

PROGRAM = "qemu-system-x86_64"
Accelerator = Literal["kvm", "tcg"]

GUEST_ADDRESS = "10.0.2.15/24"
PRIVATE_NETWORK = "10.77.0"
MULTICAST_GROUP = "230.0.0.77"

DISK_PREFIX = "/dev/disk/by-id/virtio-"
MEDIA_FOLDER = "media"
"""Folder of strata-disk, in the folder of a machine."""

_FIRST_SLOT = 8
_FUNCTIONS = 8
_LONGEST_SERIAL = 20
"""virtio-blk hands the guest 20 bytes of serial number (virtio 1.2, 5.2.6.1)."""


class DataDisk(BaseModel):
    """A data disk, seen in the machine as /dev/disk/by-id/virtio-SERIAL: a sparse file, or one that strata-disk serves
    with the timing of a model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    serial: str = Field(pattern=r"^[A-Za-z0-9_.-]+$", max_length=_LONGEST_SERIAL)
    size_bytes: int = Field(ge=1 << 20, multiple_of=512)
    iops: int | None = Field(None, ge=1)
    bytes_per_s: int | None = Field(None, ge=1)
    media: str | None = None
    definition: str | None = None
    """The text of a model that strata-disk does not come with."""
    stretch: float = 1.0
    timed: Timed = "always"


def served_name(number: int) -> str:
    """Name that strata-disk has for the disk at that place: a serial may have a dot, its names may not."""
    return f"disk{number}"


class MachineSpec(BaseModel):
    """Equipment of a machine. `index` and `group_port` place it on the private network of its lab."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=f"^{MACHINE_NAME}$")
    cpus: int = Field(2, ge=1, le=64)
    memory_bytes: int = Field(4 << 30, ge=512 << 20)
    disks: tuple[DataDisk, ...] = Field((), max_length=(32 - _FIRST_SLOT) * _FUNCTIONS)
    index: int = Field(1, ge=1, le=200)
    group_port: int | None = None

    @property
    def modelled(self) -> Mapping[str, DataDisk]:
        """The disks that strata-disk serves, by the names that it has for them."""
        return {served_name(number): disk for number, disk in enumerate(self.disks) if disk.media is not None}

    @property
    def private_address(self) -> str:
        """On the network of the lab's own machines, without the prefix length."""
        return f"{PRIVATE_NETWORK}.{self.index}"


@dataclass(frozen=True)
class Boot:
    """Files, port and accelerator that the machine is started with."""

    kernel: str
    initrd: str
    directory: str
    """Holds the overlay `root.qcow2`, `disks/SERIAL.img`, `media/disks/diskN`, and takes `console.log`."""
    ssh_port: int
    accelerator: Accelerator


def render_qemu(spec: MachineSpec, boot: Boot) -> tuple[str, ...]:
    """The argv; the process stays in the foreground and ends when the machine does."""
    return (
        PROGRAM,
        *("-name", f"pgstrata-{spec.name}"),
        *("-nodefaults", "-no-user-config", "-no-reboot"),
        *("-pidfile", f"{boot.directory}/qemu.pid"),
        *("-display", "none"),
        *("-machine", "q35,usb=off,vmport=off"),
        *_accelerator(boot.accelerator, spec.cpus),
        *("-smp", str(spec.cpus)),
        *("-m", f"{spec.memory_bytes // 2**20}M"),
        *("-kernel", boot.kernel),
        *("-initrd", boot.initrd),
        *("-append", " ".join(_kernel_arguments(boot.accelerator))),
        *("-serial", f"file:{boot.directory}/console.log"),
        *("-device", "virtio-rng-pci"),
        *_root(boot),
        *_networks(spec, boot),
        *(word for number, disk in enumerate(spec.disks) for word in _data_disk(number, disk, boot)),
    )


def render_probe(kernel: str, initrd: str, console: str) -> tuple[str, ...]:
    """A machine that only boots, says so on its console and ends: whether KVM runs this kernel."""
    return (
        PROGRAM,
        *("-nodefaults", "-no-user-config", "-no-reboot"),
        *("-display", "none"),
        *("-machine", "q35"),
        *_accelerator("kvm", 1),
        *("-m", "512M"),
        *("-kernel", kernel),
        *("-initrd", initrd),
        *("-append", "console=ttyS0 panic=-1 pgstrata.probe"),
        *("-serial", f"file:{console}"),
    )


def _accelerator(accelerator: Accelerator, cpus: int) -> tuple[str, ...]:
    """Return the options of the accelerator.

    An emulated processor is one with little state (no AVX, no protection keys). One on one thread needs no atomic
    operations: a boot and the life of three stacks took 0.57 times the processor time of two with `-cpu max`. Two with
    little state (Nehalem) took 0.86 times.
    """
    if accelerator == "kvm":
        return ("-accel", "kvm", "-cpu", "host")
    return ("-accel", f"tcg,thread={'single' if cpus == 1 else 'multi'}", "-cpu", "Westmere")


def _kernel_arguments(accelerator: Accelerator) -> tuple[str, ...]:
    return KERNEL_ARGUMENTS if accelerator == "kvm" else (*KERNEL_ARGUMENTS, *EMULATION_ARGUMENTS)


def _root(boot: Boot) -> tuple[str, ...]:
    # writeback, with flushes: the undo journal in the overlay must survive a QEMU that is killed
    drive = f"file={_quoted(boot.directory)}/root.qcow2,if=none,id=root,format=qcow2,cache=writeback"
    return ("-drive", drive, "-device", f"virtio-blk-pci,drive=root,serial={ROOT_SERIAL}")


def _networks(spec: MachineSpec, boot: Boot) -> tuple[str, ...]:
    # restrict: nothing in the machine reaches the outside, only ssh comes in, from this host alone
    user = f"user,id=ssh,restrict=on,hostfwd=tcp:127.0.0.1:{boot.ssh_port}-:22"
    user += "".join(
        f",guestfwd=tcp:{ADDRESS}:{port}-cmd:{_quoted(shlex.join(argv))}" for port, argv in _answers(spec, boot).items()
    )
    words = ["-netdev", user, "-device", "virtio-net-pci,netdev=ssh,romfile="]
    if spec.group_port is not None:
        mac = f"52:54:00:77:00:{spec.index:02x}"
        words += ["-netdev", f"socket,id=lab,mcast={MULTICAST_GROUP}:{spec.group_port},localaddr=127.0.0.1"]
        words += ["-device", f"virtio-net-pci,netdev=lab,mac={mac},romfile="]
    return tuple(words)


def _answers(spec: MachineSpec, boot: Boot) -> Mapping[int, tuple[str, ...]]:
    """Command on this host whose output a connection to each port gets. Nothing where no disk is modelled."""
    folder = f"{boot.directory}/{MEDIA_FOLDER}"
    switched = [name for name, disk in spec.modelled.items() if disk.timed == "runs"]
    answers: dict[int, tuple[str, ...]] = {PORT: (str(OWN), "stats", folder)} if spec.modelled else {}
    if switched:
        answers |= {port: (str(OWN), "timing", folder, to, *switched) for to, port in SWITCH_PORTS.items()}
    return answers


def _data_disk(number: int, disk: DataDisk, boot: Boot) -> tuple[str, ...]:
    """cache=none: the disk's flushes reach the file's medium, and the host's memory is not measured."""
    file = f"{MEDIA_FOLDER}/disks/{served_name(number)}" if disk.media is not None else f"disks/{disk.serial}.img"
    drive = f"file={_quoted(boot.directory)}/{file},if=none,id=d{number}"
    drive += ",format=raw,cache=none,discard=unmap"
    drive += f",throttling.iops-total={disk.iops}" if disk.iops else ""
    drive += f",throttling.bps-total={disk.bytes_per_s}" if disk.bytes_per_s else ""
    slot, function = _FIRST_SLOT + number // _FUNCTIONS, number % _FUNCTIONS
    address = f"addr={slot:#x}.{function:#x}" + (",multifunction=on" if function == 0 else "")
    return ("-drive", drive, "-device", f"virtio-blk-pci,drive=d{number},serial={disk.serial},{address}")


def _quoted(path: str) -> str:
    """A comma ends an option's value unless it is doubled."""
    return path.replace(",", ",,")
