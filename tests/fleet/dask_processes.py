"""A Dask cluster of processes over TLS, each of which may be killed."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from distributed import Security

from apart import apart
from awaiting import wait_until
from pgstrata.host.agent.processes import stat_fields


def write_certificates(folder: Path) -> Path:
    """ca.pem, cert.pem and key.pem, for everybody who is in the cluster."""
    folder.mkdir(mode=0o700, parents=True)
    made = Security.temporary()
    for name, text in (("ca", made.tls_ca_file), ("cert", made.tls_client_cert), ("key", made.tls_client_key)):
        path = folder / f"{name}.pem"
        path.touch(mode=0o600)
        path.write_text(text)
    return folder


def free_port() -> int:
    """A port below those that the kernel gives to connections: none can take it before the scheduler listens."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port


def end_group(group: int) -> None:
    """Kills a group of processes, except for Python's trackers: these end after the others, when they have removed the
    semaphores that the others left in /dev/shm."""

    def ended() -> bool:
        members = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if group_of(pid) == group]
        for pid in members:
            with suppress(OSError):
                if b"multiprocessing.resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
        return not members

    wait_until(ended, f"the processes of group {group} end")


def group_of(pid: int) -> int | None:
    """None for a process that has ended."""
    fields = stat_fields(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[2])


@dataclass
class DaskProcesses:
    """A scheduler and workers, as an administrator would start them."""

    certificates: Path
    environment: Mapping[str, str]
    log: Path
    port: int = field(default_factory=free_port)
    scheduler: subprocess.Popen[bytes] | None = None
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"tls://127.0.0.1:{self.port}"

    def start_scheduler(self) -> None:
        self.scheduler = self._start("dask_scheduler", "--host", self.address, "--port", str(self.port))
        wait_until(lambda: self._listens(), "the scheduler listens")

    def start_workers(self, count: int, machine_id: Path | None = None) -> None:
        """They see the machine id of a file, where one is given."""
        options = ("--nthreads", "1", "--host", "127.0.0.1", "--protocol", "tls://", "--memory-limit", "0")
        for _ in range(count):
            self.workers.append(self._start("dask_worker", self.address, *options, machine_id=machine_id))

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()

    def close(self) -> None:
        for process in [*self.workers, *([self.scheduler] if self.scheduler else [])]:
            process.kill()  # first, since a nanny restarts its worker
            process.wait()
            end_group(process.pid)

    def _listens(self) -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", self.port)) == 0

    def _start(self, program: str, *options: str, machine_id: Path | None = None) -> subprocess.Popen[bytes]:
        tls = [f"--tls-{name}-file={self.certificates / file}.pem" for name, file in (("ca", "ca"),)]
        tls += [f"--tls-cert={self.certificates}/cert.pem", f"--tls-key={self.certificates}/key.pem", "--no-dashboard"]
        argv = [sys.executable, "-m", f"distributed.cli.{program}", *options, *tls]
        if machine_id is not None:
            mounted = 'mount --bind "$0" /etc/machine-id && exec "$@"'
            argv = apart("sh", "-c", mounted, machine_id, *argv)
        with self.log.open("ab") as log:
            return subprocess.Popen(
                argv,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


@contextmanager
def dask_processes(folder: Path, environment: Mapping[str, str], *, workers: int) -> Iterator[DaskProcesses]:
    """The cluster, and nothing of it afterwards."""
    cluster = DaskProcesses(write_certificates(folder / "tls"), environment, folder / "dask.log")
    try:
        cluster.start_scheduler()
        cluster.start_workers(workers)
        yield cluster
    finally:
        cluster.close()
