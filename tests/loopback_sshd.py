"""A real sshd on 127.0.0.1, with keys, configuration and port of its own."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from awaiting import wait_until
from pgstrata.host.ssh import SshHost
from pgstrata.spec.hosts.targets import SshTarget

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin")
SEPARATION = Path("/run/sshd")
"""Where sshd insists on chrooting its unprivileged part when it runs as root."""


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _keygen(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True, timeout=30)


@dataclass
class LoopbackSshd:
    """`extra` are further lines of sshd_config."""

    directory: Path
    extra: tuple[str, ...] = ()
    port: int = field(default_factory=_free_port)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        _keygen(self.directory / "host_key")
        _keygen(self.directory / "user_key")
        shutil.copy(self.directory / "user_key.pub", self.directory / "authorized_keys")
        self.write_known_hosts(self.directory / "host_key.pub")
        (self.directory / "client_config").write_text(
            f"IdentityFile {self.directory}/user_key\nIdentitiesOnly yes\nStrictHostKeyChecking yes\n"
            f"UserKnownHostsFile {self.directory}/known_hosts\nGlobalKnownHostsFile none\n"
        )
        lines = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.directory}/host_key",
            f"AuthorizedKeysFile {self.directory}/authorized_keys",
            f"PidFile {self.directory}/pid",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "PermitRootLogin prohibit-password",
            *self.extra,
        ]
        (self.directory / "sshd_config").write_text("\n".join(lines) + "\n")
        if os.geteuid() == 0:  # stays, as the package's own: other sshds of other tests need it at any moment
            SEPARATION.mkdir(mode=0o755, exist_ok=True)
        self.start()

    def write_known_hosts(self, public_key: Path) -> None:
        kind, key = public_key.read_text().split()[:2]
        (self.directory / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {kind} {key}\n")

    def start(self) -> None:
        assert SSHD is not None
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(self.directory / "sshd_config")], stderr=log)
        wait_until(self._answers, f"sshd on port {self.port}")

    def _answers(self) -> bool:
        assert self.process.poll() is None, (self.directory / "log").read_text()
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=10).close()
        except ConnectionRefusedError:
            return False
        return True

    def sessions(self) -> list[int]:
        """Processes that serve a connection."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in children]

    def stop(self) -> None:
        """Ends the listener; sessions go on."""
        self.process.terminate()
        self.process.wait(timeout=60)

    @property
    def target(self) -> SshTarget:
        return SshTarget("127.0.0.1", getpass.getuser(), self.port)

    @property
    def options(self) -> tuple[str, ...]:
        return ("-F", str(self.directory / "client_config"))

    def connect(self) -> SshHost:
        return SshHost(self.target, options=self.options, state_directory=str(self.directory / "state"))
