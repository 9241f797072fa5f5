"""One lab machine: made from the image, started, reached over ssh, stopped.

Everything of a machine lies in its own folder: an overlay of the image, sparse data disks, a key pair of its own, the
console's log and `machine.json`, from which any later process can find and end it.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from pgstrata.errors import PgstrataError, PreflightError
from pgstrata.host.delivery import BUILDING, lacking, program_call, serving_call, stop_serving, timing_options
from pgstrata.host.facts.modelled import PATH as MODELLED_PATH
from pgstrata.host.facts.modelled import ModelledDisk, render_modelled
from pgstrata.host.protocol import Command, Host, Process, command, marked
from pgstrata.host.ssh import SshHost
from pgstrata.lab.image import Image
from pgstrata.lab.initrd import Entry, render_seed
from pgstrata.lab.qemu import (
    DISK_PREFIX,
    GUEST_ADDRESS,
    MEDIA_FOLDER,
    PROGRAM,
    Accelerator,
    Boot,
    DataDisk,
    MachineSpec,
    render_qemu,
)
from pgstrata.spec.hosts.lab import RUNNING_LAB
from pgstrata.spec.hosts.targets import SshTarget
from pgstrata.spec.layers.media import defined_parameters

BOOT_TIMEOUT_S = 300.0
"""In emulation on a busy machine; idle it takes about 30 s."""
PORT_ATTEMPTS = 5
STOP_GRACE_S = 10.0
TOOLS = {PROGRAM: "qemu-system-x86", "qemu-img": "qemu-utils", "ssh-keygen": "openssh-client"}

STATE = "machine.json"

ChoosePort = Callable[[], int]


class EndedBooting(PgstrataError):
    """The QEMU of a machine has ended before the machine was up."""


class Machine(BaseModel):
    """Record of a machine that was started."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    spec: MachineSpec
    directory: str
    image: str
    ssh_port: int
    accelerator: Accelerator
    owner_pid: int | None = None
    """The process that ends it when done; None for one that stays up until it is told to go."""
    owner_started: int | None = None

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def marker(self) -> str:
        """Value of PGSTRATA_TRIAL in the environment of its QEMU."""
        return f"lab-{self.name}"

    @property
    def kind(self) -> Literal["native", "emulated"]:
        return "native" if self.accelerator == "kvm" else "emulated"

    @property
    def ssh_options(self) -> tuple[str, ...]:
        """For the ssh client: this machine's key and host key, nothing of the user's own configuration."""
        return (
            *("-F", "/dev/null"),
            *("-i", f"{self.directory}/id_ed25519"),
            *("-o", "IdentitiesOnly=yes"),
            *("-o", f"UserKnownHostsFile={self.directory}/known_hosts"),
            *("-o", "StrictHostKeyChecking=yes"),
        )


def render_ssh(machine: Machine, words: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The argv of an ssh client on a machine, for a user at a terminal."""
    return ("ssh", *machine.ssh_options, "-p", str(machine.ssh_port), "root@127.0.0.1", *words)


def require_tools(host: Host) -> None:
    """PreflightError that names the packages of the tools that are missing."""
    missing = sorted(p for tool, p in TOOLS.items() if host.run(command("which", tool), check=False).exit_code != 0)
    if missing:
        raise PreflightError(f"the lab needs {', '.join(missing)}", hint=f"apt-get install {' '.join(missing)}")


def start_machine(
    host: Host,
    image: Image,
    spec: MachineSpec,
    *,
    parent: str,
    accelerator: Accelerator,
    owned: bool,
    choose_port: ChoosePort | None = None,
) -> Machine:
    """Makes the folder of a machine and starts it; returns before it is up (see `wait_until_up`).

    `owned`: it belongs to the calling process and is ended by a later one should that die. `choose_port` gives ports to
    try for its sshd, by default free ones.
    """
    choose_port = choose_port or free_port
    directory = f"{parent}/{spec.name}"
    if host.status(f"{directory}/{STATE}") is not None:
        raise PreflightError(f"lab machine {spec.name} is there already", hint=f"pgstrata lab down {spec.name}")
    owner = (os.getpid(), process_started(os.getpid())) if owned else (None, None)
    host.make_directory(f"{directory}/disks", mode=0o700)
    machine = Machine(
        spec=spec,
        directory=directory,
        image=image.key,
        ssh_port=choose_port(),
        accelerator=accelerator,
        owner_pid=owner[0],
        owner_started=owner[1],
    )
    _save(host, machine)
    try:
        _make_files(host, image, machine)
        return _start_qemu(host, image, machine, choose_port)
    except BaseException:
        remove_machine(host, machine)
        raise


def _save(host: Host, machine: Machine) -> None:
    host.write_text(f"{machine.directory}/{STATE}", machine.model_dump_json(), mode=0o600)


def load_machine(host: Host, directory: str) -> Machine | None:
    """The machine whose folder that is; None when there is none."""
    path = f"{directory}/{STATE}"
    return None if host.status(path) is None else Machine.model_validate_json(host.read_text(path))


def _make_files(host: Host, image: Image, machine: Machine) -> None:
    directory = machine.directory
    for name in ("id_ed25519", "host_ed25519"):
        host.remove(f"{directory}/{name}")
        options = ["-q", "-t", "ed25519", "-N", "", "-C", f"pgstrata-{machine.name}"]
        host.run(command("ssh-keygen", options, ["-f", f"{directory}/{name}"]))
    host_key = host.read_text(f"{directory}/host_ed25519.pub").split()
    _save_known_host(host, machine, host_key)
    backing = ["-f", "qcow2", "-F", "raw", "-b", image.root]
    host.run(command("qemu-img", "create", "-q", backing, f"{directory}/root.qcow2"))
    for disk in machine.spec.disks:
        if disk.media is not None:
            continue
        host.run(command("truncate", f"--size={disk.size_bytes}", f"{directory}/disks/{disk.serial}.img"))
    initrd = Path(image.initrd).read_bytes() + render_seed(_seed(host, machine))
    path = Path(directory) / "initrd"
    path.touch(mode=0o600)
    path.write_bytes(initrd)
    if machine.spec.modelled:
        serve_media(host, f"{directory}/{MEDIA_FOLDER}", machine.spec.modelled)


def serve_media(host: Host, folder: str, disks: Mapping[str, DataDisk]) -> None:
    """A daemon with the modelled disks; it ends with the machine (`remove_machine`)."""
    problem = lacking(host)
    if problem is not None:
        raise PreflightError(f"modelled disks of a lab machine cannot be had: {problem}", hint=BUILDING)
    host.run(serving_call("serve", folder, "--background"))
    for number, (name, disk) in enumerate(disks.items()):
        model = str(disk.media)
        if disk.definition is not None:
            model = f"{folder}/{name}.toml"
            host.write_text(model, disk.definition, mode=0o600)
        timing = timing_options(model, disk.stretch, disk.timed)
        sized, seeded = ("--size", str(disk.size_bytes)), ("--seed", str(number))
        host.run(program_call("add", folder, name, *sized, *timing, *seeded))


def _save_known_host(host: Host, machine: Machine, key: list[str]) -> None:
    line = f"[127.0.0.1]:{machine.ssh_port} {key[0]} {key[1]}\n"
    host.write_text(f"{machine.directory}/known_hosts", line, mode=0o600)


def _seed(host: Host, machine: Machine) -> tuple[Entry, ...]:
    """The files in which one machine differs from another; unpacked over the root filesystem before systemd starts."""
    spec, directory = machine.spec, machine.directory

    def read(name: str) -> bytes:
        return host.read_text(f"{directory}/{name}").encode()

    addresses = f"eth0 {GUEST_ADDRESS}\n" + (f"eth1 {spec.private_address}/24\n" if spec.group_port else "")
    modelled = {
        f"{DISK_PREFIX}{disk.serial}": ModelledDisk(
            name, str(disk.media), disk.stretch, disk.timed, defined_parameters(disk.definition)
        )
        for name, disk in spec.modelled.items()
    }
    return (
        Entry("root", permissions=0o700, directory=True),
        Entry("root/.ssh", permissions=0o700, directory=True),
        Entry("root/.ssh/authorized_keys", read("id_ed25519.pub"), 0o600),
        Entry("etc/ssh/ssh_host_ed25519_key", read("host_ed25519"), 0o600),
        Entry("etc/ssh/ssh_host_ed25519_key.pub", read("host_ed25519.pub")),
        Entry("etc/hostname", f"{spec.name}\n".encode()),
        Entry("etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 {spec.name}\n".encode()),
        # without one, systemd takes the boot for the first and sets every unit anew
        Entry("etc/machine-id", f"{secrets.token_hex(16)}\n".encode(), 0o444),
        Entry("etc/pgstrata/addresses", addresses.encode()),
        # nothing there makes the nodes of drivers that are not loaded, and strata-disk opens /dev/fuse
        Entry(MODELLED_PATH.lstrip("/"), render_modelled(modelled).encode()),
        Entry("etc/modules-load.d/pgstrata.conf", b"fuse\n"),
    )


def _start_qemu(host: Host, image: Image, machine: Machine, choose_port: ChoosePort) -> Machine:
    """Tries further ports when somebody else took the one that was free a moment ago."""
    for attempt in range(PORT_ATTEMPTS):
        process = _spawn(host, image, machine)
        error = _early_end(host, machine, process)
        if error is None:
            return machine
        if "host forwarding" not in error or attempt == PORT_ATTEMPTS - 1:
            raise PgstrataError(f"QEMU of lab machine {machine.name} does not start: {error}")
        machine = machine.model_copy(update={"ssh_port": choose_port()})
        _save_known_host(host, machine, host.read_text(f"{machine.directory}/host_ed25519.pub").split())
        _save(host, machine)
    raise AssertionError("unreachable")


def _spawn(host: Host, image: Image, machine: Machine) -> Process:
    boot = Boot(
        kernel=image.kernel,
        initrd=f"{machine.directory}/initrd",
        directory=machine.directory,
        ssh_port=machine.ssh_port,
        accelerator=machine.accelerator,
    )
    argv = render_qemu(machine.spec, boot)
    started = Command(argv, env=marked(machine.marker))
    log = f"{machine.directory}/qemu.log"
    host.remove(log)  # of an attempt at another port
    return host.start(started, stdout="/dev/null", stderr=log)


def _early_end(host: Host, machine: Machine, process: Process) -> str | None:
    """Message of a QEMU that ended at once: it checks its options and ports within a fraction of a second, and has
    written its pid file by then where nothing else is busy."""
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline or machine_pid(host, machine) is None:
        if process.poll() is not None:
            return " ".join(host.read_text(f"{machine.directory}/qemu.log").split()) or "it said nothing"
        time.sleep(0.05)
    return None


def wait_until_up(host: Host, machine: Machine, timeout_s: float = BOOT_TIMEOUT_S) -> float:
    """Waits until the machine's sshd answers; gives the seconds it took. EndedBooting when its QEMU ends before that,
    PgstrataError when it is late."""
    began = time.monotonic()
    while not _answers(machine.ssh_port):
        if machine_pid(host, machine) is None:
            raise EndedBooting(f"lab machine {machine.name} ended while booting: {_last_words(host, machine)}")
        if time.monotonic() - began > timeout_s:
            raise PgstrataError(
                f"lab machine {machine.name} was not up after {timeout_s:.0f} s: {_last_words(host, machine)}"
            )
        host.pause(0.2)
    return time.monotonic() - began


def _answers(port: int) -> bool:
    """True if an sshd greets: QEMU itself accepts connections before the machine listens."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5.0) as connection:
            connection.settimeout(5.0)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _last_words(host: Host, machine: Machine) -> str:
    words = []
    for name in ("qemu.log", "console.log"):
        path = f"{machine.directory}/{name}"
        if host.status(path) is not None:
            words += host.read_text(path).strip().splitlines()[-3:]
    return " | ".join(words) or "nothing was said"


def restart_machine(host: Host, image: Image, machine: Machine, timeout_s: float = BOOT_TIMEOUT_S) -> float:
    """Starts a machine again that has died, with the disks it had; as `wait_until_up`."""
    error = _early_end(host, machine, _spawn(host, image, machine))
    if error is not None:
        raise PgstrataError(f"QEMU of lab machine {machine.name} does not start again: {error}")
    return wait_until_up(host, machine, timeout_s)


def ssh_target(machine: Machine) -> SshTarget:
    """Address where its sshd is reached from this host."""
    return SshTarget("127.0.0.1", "root", machine.ssh_port)


def connect_machine(machine: Machine) -> SshHost:
    """The machine as a host: to everything else it is one over ssh."""
    return SshHost(
        ssh_target(machine),
        name=f"{RUNNING_LAB}{machine.name}",
        kind=machine.kind,
        options=machine.ssh_options,
        peer_address=machine.spec.private_address if machine.spec.group_port else "",
    )


def machine_pid(host: Host, machine: Machine) -> int | None:
    """The pid of its QEMU; None when it does not run. A pid that went to another program does not count."""
    try:
        pid = int(host.read_text(f"{machine.directory}/qemu.pid"))
        running = f"{machine.directory}/root.qcow2" in host.read_text(f"/proc/{pid}/cmdline")
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return None
    return pid if running else None


def remove_machine(host: Host, machine: Machine) -> None:
    """Ends its QEMU and removes its folder with overlay and data disks; nothing there is fine."""
    host.stop_marked(machine.marker, STOP_GRACE_S)
    stop_serving(host, f"{machine.directory}/{MEDIA_FOLDER}")
    host.remove(machine.directory)


def free_port() -> int:
    """A TCP port on 127.0.0.1 that nobody has at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def process_started(pid: int) -> int | None:
    """When a process started (clock ticks since boot, proc(5)); None when there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(fields[19])


def owner_gone(machine: Machine) -> bool:
    """True if the process that a machine belongs to has ended without ending it."""
    if machine.owner_pid is None:
        return False
    return process_started(machine.owner_pid) != machine.owner_started
