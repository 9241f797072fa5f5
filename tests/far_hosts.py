"""Far hosts on this machine: an sshd in mount and network namespaces of its own, with a machine id, a state directory
and a private address of its own. The kernel, its processes and disks are this machine's.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from awaiting import wait_until

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin")
SEPARATION = Path("/run/sshd")
STATE = "/var/lib/pgstrata"
_OWN = f"far{os.getpid()}"
"""Of interfaces: several tests may run at a time."""
_NET = {4: f"10.211.{os.getpid() % 256}.", 6: f"fd00:211:{os.getpid() % 65536:x}::"}
_BITS = {4: 24, 6: 64}


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, timeout=60, capture_output=True)


@dataclass
class FarHost:
    """One of them; `holder` keeps its namespaces, whatever becomes of its sshd."""

    name: str
    number: int
    folder: Path
    holder: subprocess.Popen[bytes]
    version: Literal[4, 6] = 4
    """Of its address."""
    sshd: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{_NET[self.version]}{self.number + 1}"

    @property
    def target(self) -> str:
        return f"ssh://{self.address}" if self.version == 4 else f"ssh://[{self.address}]"

    def argv(self, *argv: str) -> list[str]:
        """A command over there."""
        return ["nsenter", f"--target={self.holder.pid}", "--mount", "--net", "--uts", *argv]

    def start(self) -> None:
        assert SSHD is not None
        config = self.folder / "sshd_config"
        config.write_text(
            f"Port 22\nListenAddress {self.address}\nHostKey {self.folder.parent}/host_key\n"
            f"AuthorizedKeysFile {self.folder.parent}/user_key.pub\nPidFile none\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nPermitRootLogin prohibit-password\n"
        )
        with (self.folder / "log").open("ab") as log:
            self.sshd = subprocess.Popen(self.argv(SSHD, "-D", "-e", "-f", str(config)), stderr=log)
        wait_until(self._answers, f"sshd of {self.name}")

    def _answers(self) -> bool:
        look = ["ssh", "-F", str(self.folder.parent / "client"), self.address, "true"]
        return subprocess.run(look, capture_output=True, timeout=60, check=False).returncode == 0

    def kill(self) -> None:
        """All that runs over there, at once, but what keeps its namespaces."""
        own = os.readlink(f"/proc/{self.holder.pid}/ns/mnt")
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if int(path.name) != self.holder.pid and os.readlink(path / "ns/mnt") == own:
                    os.kill(int(path.name), signal.SIGKILL)
        if self.sshd is not None:
            self.sshd.wait(timeout=60)

    def remains(self) -> list[str]:
        """Mounts, journals, loop devices and processes of trials that are there."""
        shown = Path(f"/proc/{self.holder.pid}/mounts").read_text(encoding="utf-8").splitlines()
        mounts = [line for line in shown if line.split()[1].startswith(f"{STATE}/")]
        state = Path(f"/proc/{self.holder.pid}/root{STATE}")
        inside = [str(path) for name in ("journal", "mount") for path in (state / name).glob("*")]
        return [*mounts, *inside, *self._processes()]

    def _processes(self) -> list[str]:
        own, found = os.readlink(f"/proc/{self.holder.pid}/ns/mnt"), []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if os.readlink(path / "ns/mnt") == own and b"PGSTRATA_TRIAL=" in (path / "environ").read_bytes():
                    found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        return found


@contextmanager
def far_hosts(
    folder: Path, names: Sequence[str], version: Literal[4, 6] = 4
) -> Iterator[tuple[dict[str, FarHost], str]]:
    """The hosts, joined with this machine by a bridge, and the PATH with which ssh finds its way to them. Their
    addresses are of that version of IP."""
    folder.mkdir(mode=0o755)
    for key in ("host_key", "user_key"):
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key))
    client = folder / "client"
    client.write_text(
        f"IdentityFile {folder}/user_key\nIdentitiesOnly yes\nStrictHostKeyChecking no\n"
        f"UserKnownHostsFile {folder}/known_hosts\nGlobalKnownHostsFile none\nLogLevel ERROR\nUser root\n"
    )
    ssh = folder / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {client} "$@"\n')
    ssh.chmod(0o755)
    SEPARATION.mkdir(mode=0o755, exist_ok=True)
    with ExitStack() as undo:
        _run("ip", "link", "add", _OWN, "type", "bridge")
        undo.callback(_run, "ip", "link", "del", _OWN)
        _run(*_add_address(version, f"{_NET[version]}1", _OWN))
        _run("ip", "link", "set", _OWN, "up")
        hosts = {name: undo.enter_context(_far_host(folder, name, n + 1, version)) for n, name in enumerate(names)}
        yield hosts, f"{ssh.parent}:{os.environ['PATH']}"


def _add_address(version: Literal[4, 6], address: str, interface: str) -> tuple[str, ...]:
    """One of IPv6 can be used at once, as nobody asks whether others have it."""
    at_once = ("nodad",) if version == 6 else ()
    return ("ip", "address", "add", f"{address}/{_BITS[version]}", "dev", interface, *at_once)


@contextmanager
def _far_host(folder: Path, name: str, number: int, version: Literal[4, 6]) -> Iterator[FarHost]:
    own = folder / name
    own.mkdir()
    (own / "machine-id").write_text(f"{uuid.uuid4().hex}\n")
    holder = subprocess.Popen(
        ["unshare", "--mount", "--net", "--uts", "--propagation", "slave", "sleep", "infinity"],
    )
    host = FarHost(name, number, own, holder, version)
    here = os.readlink("/proc/self/ns/net")
    wait_until(lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != here, "a network namespace")
    link = f"{_OWN}n{number}"
    try:
        _run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth9", "netns", str(holder.pid))
        _run("ip", "link", "set", link, "master", _OWN, "up")
        for argv in (
            ("ip", "link", "set", "lo", "up"),
            _add_address(version, host.address, "eth9"),
            ("ip", "link", "set", "eth9", "up"),
            ("hostname", name),
            ("mount", "--bind", str(own / "machine-id"), "/etc/machine-id"),
            ("mkdir", "--parents", STATE),
            ("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", STATE),
        ):
            _run(*host.argv(*argv))
        host.start()
        yield host
    finally:
        host.kill()
        holder.kill()
        holder.wait(timeout=60)
        subprocess.run(["ip", "link", "del", link], capture_output=True, timeout=60, check=False)
