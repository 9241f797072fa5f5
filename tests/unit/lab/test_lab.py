"""The pure parts of the lab: archives, initrd, mirrors, QEMU's command line, disks of a campaign."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError

from pgstrata.errors import PreflightError
from pgstrata.host.delivery import OWN
from pgstrata.lab.image import (
    Source,
    choose_sources,
    parse_apt_config,
    parse_deb822_sources,
    parse_one_line_sources,
)
from pgstrata.lab.initrd import (
    Entry,
    directory,
    insertion_order,
    module_name,
    parse_modules_dep,
    render_cpio,
    render_seed,
    with_parents,
)
from pgstrata.lab.machines import plan_disks
from pgstrata.lab.qemu import Boot, DataDisk, MachineSpec, render_qemu
from pgstrata.lab.recipe import Recipe
from pgstrata.spec.hosts.lab import LabDisk, LabMachine
from pgstrata.spec.stack import Stack

FIXTURES = Path(__file__).parents[2] / "fixtures" / "lab"


class TestCpio:
    @pytest.mark.skipif(shutil.which("cpio") is None, reason="cpio is not installed")
    def test_the_real_tool_unpacks_it(self, tmp_path: Path) -> None:
        archive = render_cpio(with_parents([Entry("a/b/file", b"content", 0o600), directory("a/empty", 0o700)]))
        subprocess.run(["cpio", "--extract", "--quiet"], input=archive, cwd=tmp_path, check=True, timeout=60)
        file = tmp_path / "a/b/file"
        assert file.read_bytes() == b"content"
        assert file.stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "a/empty").stat().st_mode & 0o777 == 0o700

    def test_layout(self) -> None:
        archive = render_cpio([Entry("f", b"12345")])
        assert archive[:6] == b"070701"
        assert len(archive) % 4 == 0
        assert b"TRAILER!!!" in archive
        # header of 110 bytes and the name with its zero are padded together
        assert archive[112:117] == b"12345"

    def test_equal_content_gives_equal_bytes(self) -> None:
        entries = with_parents([Entry("x/y", b"1")])
        assert render_cpio(entries) == render_cpio(entries)

    def test_files_of_a_machine_lie_below_seed(self) -> None:
        assert b"seed/etc/hostname\0" in render_seed([Entry("etc/hostname", b"lab\n")])


class TestModules:
    dependencies = parse_modules_dep((FIXTURES / "modules.dep-6.1.txt").read_text())

    def test_dependencies_come_first(self) -> None:
        dependencies = {
            "kernel/a.ko": ("kernel/b.ko", "kernel/c.ko"),
            "kernel/b.ko": ("kernel/c.ko",),
            "kernel/c.ko": (),
        }
        assert insertion_order(dependencies, ["a"]) == ("kernel/c.ko", "kernel/b.ko", "kernel/a.ko")

    def test_what_is_built_in_has_no_file(self) -> None:
        assert insertion_order(self.dependencies, ["not-a-module"]) == ()

    def test_recorded_file(self) -> None:
        first = next(iter(self.dependencies))
        assert insertion_order({**self.dependencies, first: ()}, [module_name(first)]) == (first,)

    def test_names(self) -> None:
        assert module_name("kernel/drivers/char/hw_random/virtio-rng.ko") == "virtio_rng"

    def test_a_bad_line_is_an_error(self) -> None:
        with pytest.raises(ValueError, match=r"modules\.dep"):
            parse_modules_dep("no colon here\n")


class TestMirror:
    one_line = (
        "# comment\n"
        "deb [arch=amd64 signed-by=/usr/share/keyrings/k.gpg] http://mirror.test/debian bookworm main\n"
        "deb-src http://mirror.test/debian bookworm main\n"
        "deb http://mirror.test/debian-security bookworm-security main # at the end\n"
        "deb http://other.test/apt bookworm other\n"
    )
    deb822 = (
        "Types: deb\nURIs: http://mirror.test/debian\nSuites: bookworm bookworm-updates\nComponents: main\n"
        "Signed-By: /usr/share/keyrings/debian.gpg\n\n"
        "Types: deb\nEnabled: no\nURIs: http://off.test/debian\nSuites: bookworm\nComponents: main\n"
    )

    def test_one_line(self) -> None:
        found = parse_one_line_sources(self.one_line)
        assert found[0] == Source("http://mirror.test/debian", "bookworm", ("main",), "/usr/share/keyrings/k.gpg")
        assert [s.suite for s in found] == ["bookworm", "bookworm-security", "bookworm"]

    def test_deb822(self) -> None:
        found = parse_deb822_sources(self.deb822)
        assert [(s.uri, s.suite, s.signed_by) for s in found] == [
            ("http://mirror.test/debian", "bookworm", "/usr/share/keyrings/debian.gpg"),
            ("http://mirror.test/debian", "bookworm-updates", "/usr/share/keyrings/debian.gpg"),
        ]

    def test_only_archives_of_the_release_are_taken_with_contrib_added(self) -> None:
        lines = choose_sources(parse_one_line_sources(self.one_line), "bookworm")
        assert lines == (
            "deb [signed-by=/usr/share/keyrings/k.gpg] http://mirror.test/debian bookworm main contrib",
            "deb http://mirror.test/debian-security bookworm-security main contrib",
        )

    def test_no_mirror_is_refused_with_a_way_out(self) -> None:
        with pytest.raises(PreflightError, match="no mirror of Debian bookworm") as caught:
            choose_sources([Source("http://mirror.test/ubuntu", "noble", ("main",))], "bookworm")
        assert "--mirror" in caught.value.hint

    def test_proxies_are_passed_on_and_other_settings_are_not(self) -> None:
        dumped = (
            'Acquire "";\nAcquire::http "";\nAcquire::http::Proxy "http://proxy.test:3128";\n'
            'Acquire::Check-Valid-Until "false";\nAcquire::Languages "none";\n'
        )
        assert parse_apt_config(dumped) == (
            'Acquire::http "";',
            'Acquire::http::Proxy "http://proxy.test:3128";',
            'Acquire::Check-Valid-Until "false";',
        )


class TestQemu:
    boot = Boot("/image/vmlinuz", "/m/initrd", "/m,n", 2222, "tcg")

    def test_ssh_is_on_loopback_and_nothing_leaves(self) -> None:
        argv = render_qemu(MachineSpec(name="lab"), self.boot)
        assert "user,id=ssh,restrict=on,hostfwd=tcp:127.0.0.1:2222-:22" in argv
        assert not any("mcast" in word for word in argv)

    def test_disks_have_serials_limits_and_places(self) -> None:
        disks = tuple(DataDisk(serial=f"d{i}", size_bytes=1 << 30) for i in range(9))
        slow = DataDisk(serial="slow", size_bytes=1 << 30, iops=120, bytes_per_s=100_000_000)
        argv = render_qemu(MachineSpec(name="lab", disks=(*disks, slow)), self.boot)
        drives = [word for word in argv if word.startswith("file=")]
        assert drives[1].startswith("file=/m,,n/disks/d0.img,")
        assert drives[-1].endswith(",throttling.iops-total=120,throttling.bps-total=100000000")
        devices = [word for word in argv if word.startswith("virtio-blk-pci,drive=d")]
        assert devices[0] == "virtio-blk-pci,drive=d0,serial=d0,addr=0x8.0x0,multifunction=on"
        assert devices[8] == "virtio-blk-pci,drive=d8,serial=d8,addr=0x9.0x0,multifunction=on"
        assert len({device.split("addr=")[1] for device in devices}) == 10

    def test_modelled_disks_are_files_of_the_daemon_and_their_accounts_can_be_asked_for(self) -> None:
        log = DataDisk(serial="ssd.log", size_bytes=1 << 30, media="sata-ssd-plp", stretch=20)
        argv = render_qemu(MachineSpec(name="lab", disks=(log,)), self.boot)
        assert any(word.startswith("file=/m,,n/media/disks/disk0,") and "cache=none" in word for word in argv)
        (network,) = (word for word in argv if "guestfwd" in word)
        assert network.endswith(f",guestfwd=tcp:10.0.2.100:7070-cmd:{OWN} stats /m,,n/media")

    def test_only_disks_that_are_timed_in_runs_alone_can_be_switched_from_inside(self) -> None:
        log = DataDisk(serial="log", size_bytes=1 << 30, media="sata-ssd-plp", timed="runs")
        argv = render_qemu(MachineSpec(name="lab", disks=(log, log.model_copy(update={"timed": "always"}))), self.boot)
        (network,) = (word for word in argv if "guestfwd" in word)
        assert f"tcp:10.0.2.100:7071-cmd:{OWN} timing /m,,n/media on disk0,guestfwd" in network
        assert network.endswith(f"tcp:10.0.2.100:7072-cmd:{OWN} timing /m,,n/media off disk0")

    def test_machines_of_a_lab_share_a_network_on_loopback(self) -> None:
        argv = render_qemu(MachineSpec(name="lab-2", index=2, group_port=4444), self.boot)
        assert "socket,id=lab,mcast=230.0.0.77:4444,localaddr=127.0.0.1" in argv
        assert "virtio-net-pci,netdev=lab,mac=52:54:00:77:00:02,romfile=" in argv

    def test_kvm(self) -> None:
        argv = render_qemu(MachineSpec(name="lab"), Boot("k", "i", "/m", 1, "kvm"))
        assert argv[argv.index("-accel") + 1] == "kvm"
        assert "clocksource" not in argv[argv.index("-append") + 1]

    def test_an_emulated_machine_does_not_trust_its_tsc(self) -> None:
        argv = render_qemu(MachineSpec(name="lab"), self.boot)
        assert "clocksource=hpet" in argv[argv.index("-append") + 1].split()

    @pytest.mark.parametrize(("cpus", "thread"), [(1, "single"), (2, "multi")])
    def test_one_emulated_processor_needs_one_thread(self, cpus: int, thread: str) -> None:
        argv = render_qemu(MachineSpec(name="lab", cpus=cpus), self.boot)
        assert argv[argv.index("-accel") + 1] == f"tcg,thread={thread}"
        assert argv[argv.index("-smp") + 1] == str(cpus)

    @pytest.mark.parametrize("serial", ["", "a b", "x" * 21, "a,b"])
    def test_serials_that_virtio_cannot_carry(self, serial: str) -> None:
        with pytest.raises(ValidationError):
            DataDisk(serial=serial, size_bytes=1 << 30)


class TestRecipe:
    def test_the_key_names_the_content(self) -> None:
        assert Recipe().key == Recipe().key
        assert Recipe().key != Recipe(packages=("one",)).key
        assert Recipe().key != Recipe(init="other").key


class TestDisksOfACampaign:
    def test_every_device_that_a_stack_names(self) -> None:
        prefix = "/dev/disk/by-id/virtio-"
        pool = {
            "kind": "zfs",
            "log": {"kind": "disk", "ids": [f"{prefix}ssd"]},
            "cache": {"kind": "loop"},
        }
        stacks = (
            Stack.model_validate(
                {"name": "z", "data": {"device": {"kind": "disk", "ids": [f"{prefix}hdd"]}, "fs": pool}}
            ),
            Stack.model_validate(
                {"name": "x", "data": {"device": {"kind": "disk", "ids": [f"{prefix}hdd"]}, "fs": {"kind": "xfs"}}}
            ),
        )
        lab = LabMachine(disk_size="2GiB", disks={"hdd": LabDisk(size="8GiB", iops=120, bandwidth="100MB")})
        assert plan_disks(stacks, lab) == (
            DataDisk(serial="hdd", size_bytes=8 << 30, iops=120, bytes_per_s=100 << 20),
            DataDisk(serial="ssd", size_bytes=2 << 30),
        )
