"""The daemon of a lab machine's modelled disks: it serves what was asked, and goes with the machine, killed or not."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from awaiting import is_running, wait_until
from pgstrata.host.delivery import program_call
from pgstrata.host.local import LocalHost
from pgstrata.lab import machines
from pgstrata.lab.machine import STATE, Machine, remove_machine, serve_media
from pgstrata.lab.qemu import MEDIA_FOLDER, DataDisk, MachineSpec
from pgstrata.stack.disk_counters import parse_statistics

pytestmark = pytest.mark.skipif(
    not (Path(sys.executable).parent / "strata-disk").exists(), reason="strata-disk is not built: cargo is missing"
)

DISKS = (
    DataDisk(serial="hdd", size_bytes=64 << 20, media="hdd-7200", stretch=20),
    DataDisk(serial="ssd.log", size_bytes=32 << 20, media="sata-ssd-plp"),
)


@pytest.mark.parametrize("what", ["", "killed", "without its socket"])
def test_modelled_disks_of_a_machine_end_with_it(host: LocalHost, tmp_path: Path, what: str) -> None:
    machine = Machine(
        spec=MachineSpec(name=f"media-{os.getpid()}", disks=DISKS),
        directory=str(tmp_path / "machine"),
        image="",
        ssh_port=1,
        accelerator="tcg",
    )
    folder = f"{machine.directory}/{MEDIA_FOLDER}"
    host.make_directory(machine.directory)
    try:
        serve_media(host, folder, machine.spec.modelled)
        told = parse_statistics(host.run(program_call("stats", folder)).stdout)
        assert {name: (disk.model, disk.stretch) for name, disk in told.items()} == {
            "disk0": ("hdd-7200", 20.0),
            "disk1": ("sata-ssd-plp", 1.0),
        }
        assert Path(f"{folder}/disks/disk0").stat().st_size == 64 << 20
        pid = int(Path(f"{folder}/lock").read_text())
        if what == "killed":
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not is_running(pid), "the daemon has ended")
        if what == "without its socket":
            Path(f"{folder}/control").unlink()
    finally:
        remove_machine(host, machine)
    wait_until(lambda: not is_running(pid), "the daemon has ended")
    assert not Path(machine.directory).exists()
    assert folder not in Path("/proc/mounts").read_text()


def test_clean_ends_the_disks_of_a_run_that_was_killed(
    host: LocalHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines, "machine_directory", lambda host: str(tmp_path))
    machine = Machine(
        spec=MachineSpec(name=f"killed-{os.getpid()}", disks=DISKS),
        directory=str(tmp_path / "machine"),
        image="",
        ssh_port=1,
        accelerator="tcg",
        owner_pid=1,
        owner_started=-1,  # another process had that number
    )
    folder = f"{machine.directory}/{MEDIA_FOLDER}"
    host.make_directory(machine.directory)
    host.write_text(f"{machine.directory}/{STATE}", machine.model_dump_json())
    try:
        serve_media(host, folder, machine.spec.modelled)
        pid = int(Path(f"{folder}/lock").read_text())
        assert machines.clean(host) == (f"removed lab machine {machine.name}: its run is gone",)
    finally:
        remove_machine(host, machine)
    wait_until(lambda: not is_running(pid), "the daemon has ended")
    assert list(tmp_path.iterdir()) == []
    assert folder not in Path("/proc/mounts").read_text()
