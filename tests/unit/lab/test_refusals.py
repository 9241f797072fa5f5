"""What keeps the lab from working here is told with the command that mends it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from fake_host import FakeHost, completed
from pgstrata.errors import PreflightError
from pgstrata.host import delivery
from pgstrata.lab.image import Image, build_image, find_image, require_space
from pgstrata.lab.machine import (
    Machine,
    machine_pid,
    owner_gone,
    remove_machine,
    render_ssh,
    require_tools,
    serve_media,
)
from pgstrata.lab.machines import Choice, check_memory, choose_accelerator, names
from pgstrata.lab.qemu import DataDisk, MachineSpec
from pgstrata.lab.recipe import Recipe
from pgstrata.spec.hosts.lab import LabMachine

SOURCES = "deb http://mirror.test/debian bookworm main\n"


def test_missing_programs() -> None:
    with pytest.raises(PreflightError, match="qemu-system-x86") as caught:
        require_tools(FakeHost(missing_programs=True))
    assert caught.value.hint.startswith("apt-get install ")


def test_building_without_a_mirror(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="no mirror"):
        build_image(FakeHost(missing_programs=True), Recipe(), say=print, directory=str(tmp_path))


def test_building_without_root(tmp_path: Path) -> None:
    files = {"/etc/apt/sources.list": SOURCES}
    host = FakeHost({("id", "--user"): completed((), "1000\n")}, files=files, missing_programs=True)
    with pytest.raises(PreflightError, match="needs root"):
        build_image(host, Recipe(), say=print, directory=str(tmp_path))


def test_building_without_mmdebstrap(tmp_path: Path) -> None:
    host = FakeHost({("id", "--user"): completed((), "0\n")}, missing_programs=True)
    with pytest.raises(PreflightError, match="mmdebstrap"):
        build_image(host, Recipe(), say=print, directory=str(tmp_path), mirror_url="http://mirror.test/debian")


def test_no_space(tmp_path: Path) -> None:
    require_space(tmp_path, 1)
    with pytest.raises(PreflightError, match="no space for the lab image"):
        require_space(tmp_path, 1 << 60)


def test_an_unfinished_image_is_none(tmp_path: Path) -> None:
    (tmp_path / Recipe().key).mkdir()
    assert find_image(Recipe(), str(tmp_path)) is None


def test_without_kvm() -> None:
    choice = choose_accelerator(FakeHost(), Image("/i", "key", "6.1", ()), "/state")
    assert choice == Choice("tcg", "there is no /dev/kvm")
    assert "functional only" in choice.notice
    assert Choice("kvm").notice == ""


def _machine(**changes: object) -> Machine:
    values = {
        "spec": MachineSpec(name="lab"),
        "directory": "/state/lab",
        "image": "key",
        "ssh_port": 2222,
        "accelerator": "tcg",
    }
    return Machine.model_validate({**values, **changes})


def test_a_pid_that_went_to_another_program_does_not_count() -> None:
    assert machine_pid(FakeHost(), _machine()) is None
    host = FakeHost(files={"/state/lab/qemu.pid": "42\n", "/proc/42/cmdline": "some\0thing\0else"})
    assert machine_pid(host, _machine()) is None
    host.write_text("/proc/42/cmdline", "qemu\0-drive\0file=/state/lab/root.qcow2,if=none")
    assert machine_pid(host, _machine()) == 42


def test_owners() -> None:
    assert not owner_gone(_machine())
    assert owner_gone(_machine(owner_pid=1, owner_started=-1))


def test_results_of_emulation_are_marked() -> None:
    assert _machine().kind == "emulated"
    assert _machine(accelerator="kvm").kind == "native"


def test_ssh_uses_the_keys_of_the_machine_alone() -> None:
    argv = render_ssh(_machine(), ("zpool", "status"))
    assert argv[-3:] == ("root@127.0.0.1", "zpool", "status")
    assert "StrictHostKeyChecking=yes" in argv
    assert argv[argv.index("-F") + 1] == "/dev/null"


def test_names() -> None:
    assert names("lab", 1) == ("lab",)
    assert names("lab", 3) == ("lab-1", "lab-2", "lab-3")


@pytest.mark.parametrize(
    ("disk", "why"),
    [
        ({"media": "hdd-15000"}, "unknown model 'hdd-15000'"),
        ({"media": "hdd-7200", "size": 0}, "0 is not a size"),
        ({"media": "hdd-7200", "size": 512}, "greater than or equal"),
        ({"media": "hdd-7200", "stretch": 0}, "greater than or equal"),
        ({"media": "hdd-7200", "iops": 100}, "has the limits of its model"),
        ({"stretch": 20}, "none is given"),
    ],
)
def test_modelled_disks_that_cannot_be(disk: dict[str, object], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        LabMachine.model_validate({"disks": {"log": disk}})


def test_a_machine_ends_with_the_daemon_of_its_disks() -> None:
    folder = "/state/lab/media"
    host = FakeHost(files={f"{folder}/lock": "1"}, answer=lambda asked: completed(asked.argv))
    remove_machine(host, _machine())
    assert [asked.argv for asked in host.asked] == [("strata-disk", "stop", folder)]
    assert host.status(folder) is None


@pytest.mark.parametrize(("available_kib", "refused"), [(5 << 20, False), ((5 << 20) - 1, True)])
def test_modelled_disks_and_the_machine_fit_into_memory(available_kib: int, refused: bool) -> None:
    host = FakeHost(files={"/proc/meminfo": f"MemTotal: 99999999 kB\nMemAvailable: {available_kib} kB\n"})
    log = DataDisk(serial="log", size_bytes=1 << 30, media="nvme")
    file = DataDisk(serial="file", size_bytes=1 << 40)
    check_memory(host, MachineSpec(name="m", memory_bytes=1 << 42, disks=(file,)))
    spec = MachineSpec(name="m", memory_bytes=4 << 30, disks=(file, log))
    if not refused:
        check_memory(host, spec)
        return
    with pytest.raises(PreflightError, match=r"takes 4.0 GiB of memory and its modelled disks up to 1.0 GiB"):
        check_memory(host, spec)


def test_without_the_program_there_is_no_machine_with_modelled_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "OWN", Path("/nowhere/strata-disk"))
    host = FakeHost(files={"/i/initrd": ""})
    log = DataDisk(serial="log", size_bytes=1 << 30, media="nvme")
    with pytest.raises(PreflightError, match="cannot be had: strata-disk is not installed") as refused:
        serve_media(host, "/state/lab/media", {"disk0": log})
    assert "make setup" in refused.value.hint
