"""The ways to a cluster, each for real: over ssh, of this machine, and with workers on several machines."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from awaiting import wait_until
from loopback_sshd import LoopbackSshd
from pgstrata.fleet import clusters
from pgstrata.record.reader import read
from pgstrata.spec.dask_cluster import DaskCluster
from pgstrata.spec.hosts.targets import SshTarget
from pgstrata.trial.fake import FAKE_MODE
from pgstrata.trial.undo_errors import note_undo_errors, undo_errors

pytest.importorskip("distributed", reason="needs Dask: make setup")

from dask_processes import dask_processes

from pgstrata.fleet.cluster_backend import described_workers

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

CAMPAIGN = """\
name: fleet
hosts: {{dask: {cluster}}}
stacks: [ext4, xfs]
workload: {{scale: 1, clients: 2, duration: 5}}
runs: {{blocks: {blocks}}}
"""


def begin(place: Path, cluster: str, blocks: int = 2) -> subprocess.CompletedProcess[str]:
    """A campaign of made-up trials."""
    file = place / "fleet.yaml"
    file.write_text(CAMPAIGN.format(cluster=cluster, blocks=blocks))
    return subprocess.run(
        [sys.executable, "-m", "pgstrata.cli.main", "run", str(file), "--out", str(place / "out")],
        env={**os.environ, FAKE_MODE: "1", "TMPDIR": str(place)},
        capture_output=True,
        text=True,
        timeout=200,
    )


def run(place: Path, cluster: str, blocks: int = 2) -> str:
    """The same, to its end; what was said."""
    done = begin(place, cluster, blocks)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_of_the_coordinator_ends_the_run_which_goes_on_with_room(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with small_disk(out, "160k"):
        done = begin(tmp_path, "{local: 1}")
        assert done.returncode not in (0, 130), done.stdout
        assert "no space left" in done.stderr
        assert "Traceback" not in done.stderr
        before = {p.name: p.stat().st_mtime_ns for p in (out / "trials").iterdir()}
        assert 1 <= len(before) < 4
        assert not any(name.startswith(".") for name in before), "a trial is there whole or not at all"
        assert list(tmp_path.glob("pgstrata-made-up-*")) == [], "the session was closed"
        subprocess.run(["mount", "-o", "remount,size=64m", str(out)], check=True)
        run(tmp_path, "{local: 1}")
        after = {p.name: p.stat().st_mtime_ns for p in (out / "trials").iterdir()}
        assert len(after) == 4
        assert before.items() <= after.items(), "no trial was run twice"


def test_workers_of_this_machine_are_one_host(tmp_path: Path) -> None:
    assert "has 3 workers: one trial at a time" in run(tmp_path, "{local: 3}")
    data = read(tmp_path / "out")
    assert Counter(t.trial.host for t in data.trials) == {socket.gethostname(): 4}


def test_what_could_not_be_undone_is_forgotten_once_its_machine_is_clean(tmp_path: Path) -> None:
    run(tmp_path, "{local: 1}", blocks=1)
    out = tmp_path / "out"
    note_undo_errors(out, ["unmount: target is busy"], socket.gethostname())
    assert "could not be undone" not in run(tmp_path, "{local: 1}")
    assert undo_errors(out) == ()


def listening(pids: set[int]) -> list[tuple[str, int]]:
    """Addresses that the processes listen on."""
    inodes = set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            name = os.readlink(descriptor) if descriptor.is_symlink() else ""
            inodes.add(name.removeprefix("socket:[").removesuffix("]"))
    found = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        parts = line.split()
        address, port = parts[1].split(":")
        if parts[3] == "0A" and parts[9] in inodes:
            found.append((socket.inet_ntoa(bytes.fromhex(address)[::-1]), int(port, 16)))
    return found


def test_what_listens_is_on_loopback_and_has_tls() -> None:
    with clusters.connected(DaskCluster(local=2)) as client:
        described_workers(client)
        workers = set(client.run(os.getpid).values())
        found = listening({os.getpid(), *workers})
        assert len(found) >= 3
        assert {address for address, _ in found} == {"127.0.0.1"}
        anybody = ssl.create_default_context()
        anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
        for address in found:
            with (
                socket.create_connection(address, timeout=30) as plain,
                pytest.raises(ssl.SSLError),
                anybody.wrap_socket(plain) as wrapped,
            ):
                wrapped.recv(1)  # without a certificate of the cluster


def test_machines_are_told_apart_and_each_runs_complete_blocks(tmp_path: Path) -> None:
    """Each worker sees a machine id of its own, by a mount namespace."""
    with dask_processes(tmp_path, {FAKE_MODE: "1"}, workers=0) as cluster:
        for number in range(3):
            machine = tmp_path / f"machine-{number}"
            machine.write_text(f"{number:032d}\n")
            cluster.start_workers(1, machine_id=machine)
        wait_until(lambda: cluster.log.read_text().count("Registered to") == 3, "three workers are there")
        run(tmp_path, f"{{address: '{cluster.address}', tls: tls}}")
    data = read(tmp_path / "out")
    hosts = Counter((t.trial.host, t.trial.stack) for t in data.trials)
    assert len(hosts) == 6
    assert set(hosts.values()) == {2}
    assert all(host.startswith(f"{socket.gethostname()}-") for host, _ in hosts)


def test_workers_are_started_through_ssh(sshd: LoopbackSshd, monkeypatch: pytest.MonkeyPatch) -> None:
    def options(target: SshTarget) -> dict[str, object]:
        return {
            "port": target.port,
            "username": target.user,
            "client_keys": [str(sshd.directory / "user_key")],
            "known_hosts": str(sshd.directory / "known_hosts"),
        }

    monkeypatch.setattr(clusters, "connect", lambda text: sshd.connect())
    monkeypatch.setattr(clusters, "_ssh_options", options)
    before = set(Path("/run").glob("pgstrata-tls-*"))
    with clusters.connected(DaskCluster(ssh=(sshd.target.text,))) as client:
        (worker,) = described_workers(client).values()
        assert (worker.hostname, worker.uid) == (socket.gethostname(), os.geteuid())
        (pid,) = client.run(os.getpid).values()
        (folder,) = set(Path("/run").glob("pgstrata-tls-*")) - before
        assert {path.stat().st_mode & 0o077 for path in (folder, *folder.iterdir())} == {0}
    assert set(Path("/run").glob("pgstrata-tls-*")) == before
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the worker ends with the cluster")
