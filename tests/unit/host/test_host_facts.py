"""Parsers of facts, on recorded output of the real tools; readers on a host in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from fake_host import FakeHost, completed
from pgstrata.host import facts
from pgstrata.host.facts.activity import (
    Server,
    parse_load,
    parse_pressure,
    parse_servers,
    read_busy,
    render_busy,
    render_servers,
)
from pgstrata.host.facts.block import Mount, parse_findmnt, parse_lsblk, parse_parents, render_device
from pgstrata.host.facts.cpu import (
    parse_lscpu,
    read_energy_preferences,
    read_governors,
    read_throttle_count,
    read_turbo,
    read_virtualisation,
)
from pgstrata.host.facts.gather import read_machine_id
from pgstrata.host.facts.system import parse_choice, parse_command_line, parse_meminfo, parse_os_release
from pgstrata.host.facts.tools import (
    BY_NAME,
    filesystem_available,
    module_available,
    parse_block_drivers,
    parse_filesystems,
    parse_personalities,
    parse_version,
    raid_available,
    read_tool,
)
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Busy, Completed

FIXTURES = Path(__file__).parents[2] / "fixtures" / "host"
CPU = "/sys/devices/system/cpu"


def _recorded(name: str) -> str:
    return (FIXTURES / name).read_text()


def test_lscpu() -> None:
    cpu = parse_lscpu(_recorded("lscpu-2.38.1-amd-kvm.json"))
    assert (cpu.model, cpu.count, cpu.sockets, cpu.threads_per_core) == ("AMD EPYC", 2, 1, 1)
    assert (cpu.architecture, cpu.hypervisor) == ("x86_64", "KVM")


def test_lscpu_counts_what_is_online_in_ranges() -> None:
    fields = '{"field":"Architecture:","data":"aarch64"},{"field":"On-line CPU(s) list:","data":"0-3,8,10-11"}'
    cpu = parse_lscpu(f'{{"lscpu":[{fields}]}}')
    assert (cpu.count, cpu.model, cpu.hypervisor) == (7, "unknown", None)


def test_lsblk() -> None:
    zram, disk = parse_lsblk(_recorded("lsblk-2.38.1.json"))
    assert zram.size_bytes == 0
    assert (disk.path, disk.kind, disk.size_bytes) == ("/dev/vda", "disk", 274877906944)
    assert (disk.logical_sector_bytes, disk.physical_sector_bytes) == (512, 4096)
    assert (disk.rotational, disk.read_only, disk.model, disk.mountpoint) == (True, False, None, "/")


def test_findmnt() -> None:
    (mount,) = parse_findmnt(_recorded("findmnt-2.38.1.json"))
    assert mount == Mount(
        "/", "/dev/vda", "ext4", ("rw", "relatime", "discard", "resv_strict", "resuid=65534", "resgid=65534")
    )


def test_findmnt_cuts_the_subvolume_off_the_source() -> None:
    entry = '{"target":"/home","source":"/dev/sda2[/@home]","fstype":"btrfs","options":"rw"}'
    assert parse_findmnt(f'{{"filesystems":[{entry}]}}')[0].source == "/dev/sda2"


def test_meminfo() -> None:
    memory = parse_meminfo(_recorded("meminfo-linux-6.18"))
    assert memory["MemTotal"] == 24684096 * 1024
    assert memory["HugePages_Total"] == 0
    with pytest.raises(ValueError, match="not a line of /proc/meminfo: nonsense"):
        parse_meminfo("MemTotal: 1 kB\nnonsense\n")


def test_os_release() -> None:
    release = parse_os_release(_recorded("os-release-debian-12"))
    assert (release.id, release.version, release.family) == ("debian", "12", "debian")
    assert release.pretty == "Debian GNU/Linux 12 (bookworm)"


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("ID=ubuntu\nID_LIKE=debian\n", "ubuntu"),
        ("ID=linuxmint\nID_LIKE='ubuntu debian'\n", "ubuntu"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "rhel"),
        ("ID=fedora\n", "fedora"),
        ('ID="opensuse-leap"\nID_LIKE="suse opensuse"\n', "suse"),
        ("ID=arch\n", "arch"),
        ("ID=manjaro\nID_LIKE=arch\n", "arch"),
        ('NAME="Alpine Linux"\nID=alpine\n', "alpine"),
        ("ID=gentoo\n", "unknown"),
        ("", "unknown"),
    ],
)
def test_family_is_that_of_the_closest_relative(text: str, family: str) -> None:
    assert parse_os_release(text).family == family


def test_kernel_lists() -> None:
    assert {"ext4", "xfs", "btrfs", "tmpfs"} <= parse_filesystems(_recorded("filesystems-linux-6.18"))
    drivers = parse_block_drivers(_recorded("devices-linux-6.18"))
    assert "loop" in drivers
    assert "mem" not in drivers  # a character device
    assert parse_personalities("Personalities : [raid1] [raid6] [raid5] [raid4] \nunused devices: <none>\n") == {
        "raid1",
        "raid4",
        "raid5",
        "raid6",
    }
    assert parse_personalities("") == frozenset()


def test_a_module_that_can_be_loaded_is_available() -> None:
    def modprobe(name: str, code: int) -> dict[tuple[str, ...], Completed]:
        argv = ("modprobe", "-n", "-q", name)
        return {argv: completed(argv, exit_code=code)}

    loadable = FakeHost(modprobe("xfs", 0), files={"/proc/filesystems": "nodev\tproc\n\text4\n"})
    assert filesystem_available(loadable, "ext4")
    assert filesystem_available(loadable, "xfs")
    assert not filesystem_available(FakeHost(modprobe("xfs", 1)), "xfs")
    assert not filesystem_available(FakeHost(missing_programs=True), "xfs")
    assert module_available(FakeHost(files={"/sys/module/dm_mod/version": "1"}), "dm-mod")
    known = FakeHost(
        files={"/proc/mdstat": "Personalities : [raid10] [raid6] [raid5] [raid4]\n"}, missing_programs=True
    )
    assert raid_available(known, "raid10")
    assert raid_available(known, "raid456")
    assert not raid_available(known, "raid1")


@pytest.mark.parametrize(
    ("tool", "version"),
    [
        ("mkfs.ext4", "1.47.0"),
        ("mkfs.xfs", "6.1.0"),
        ("mkfs.btrfs", "6.2"),
        ("lvm", "2.03.16(2)"),
        ("mdadm", "4.2"),
        ("fio", "3.33"),
        ("wipefs", "2.38.1"),
        ("blkid", "2.38.1"),
        ("losetup", "2.38.1"),
        ("lsblk", "2.38.1"),
        ("findmnt", "2.38.1"),
    ],
)
def test_versions(tool: str, version: str) -> None:
    printed = _recorded("versions-debian-12").partition(f"== {tool}\n")[2].partition("\n== ")[0]
    assert parse_version(BY_NAME[tool], printed) == version


def test_a_version_in_a_new_form_is_unknown_and_a_missing_tool_is_none() -> None:
    assert parse_version(BY_NAME["fio"], "something else") == "unknown"
    assert read_tool(FakeHost(missing_programs=True), "fio") is None


def test_pressure_and_choices() -> None:
    assert set(parse_pressure(_recorded("pressure-io-linux-6.18"))) == {"some", "full"}
    assert parse_pressure("some avg10=1.50 avg60=2.60 avg300=3.00 total=61\n")["some"]["avg10"] == 1.5
    assert parse_choice("always [madvise] never") == "madvise"
    assert parse_choice("none") == "none"
    assert parse_load("0.52 0.48 0.40 2/218 31532") == 0.52


def test_servers_are_postmasters_not_their_children() -> None:
    command = "/usr/lib/postgresql/15/bin/postgres -D /var/lib/pg/data -p 54999 -k /var/lib/pg"
    assert parse_servers(_recorded("ps-procps-4.0.2")) == (Server(13615, "postgres", command),)
    assert parse_servers("") == ()


def test_a_server_that_has_ended_is_none() -> None:
    ended = " 4711 1 postgres postgres [postgres] <defunct>\n"
    assert parse_servers(ended) == ()
    running = "   42 1 postgres postgres /usr/lib/postgresql/15/bin/postgres -D /srv\n"
    found = parse_servers(ended + running)
    assert [server.pid for server in found] == [42]
    assert render_servers(found * 7) == ", ".join([found[0].command] * 5) + " and 2 more"


def test_only_noticeable_processes_are_busy() -> None:
    idle, computing, writing = Busy(1, "idle", 0.01, 0), Busy(2, "cc1", 0.9, 0), Busy(3, "dd", 0.01, 5e7)
    assert read_busy(FakeHost(busy=(computing, writing, idle)), 0.1) == (computing, writing)
    assert writing.text == "dd (pid 3: 1% of a CPU, 50 MB/s)"


def test_of_many_busy_processes_the_busiest_are_named() -> None:
    many = tuple(Busy(pid, "cc1", 0.5, 0) for pid in range(1, 8))
    assert render_busy(many[:5]) == ", ".join(busy.text for busy in many[:5])
    assert render_busy(many) == f"{render_busy(many[:5])} and 2 more"
    assert render_busy(()) == ""


def test_processor_settings() -> None:
    files = {
        f"{CPU}/cpufreq/policy0/scaling_governor": "powersave\n",
        f"{CPU}/cpufreq/policy1/scaling_governor": "performance\n",
        f"{CPU}/cpufreq/policy0/energy_performance_preference": "power\n",
        f"{CPU}/cpu0/thermal_throttle/core_throttle_count": "3\n",
        f"{CPU}/cpu1/thermal_throttle/core_throttle_count": "4\n",
    }
    host = FakeHost(files=files)
    assert read_governors(host) == ("performance", "powersave")
    assert read_energy_preferences(host) == ("power",)
    assert read_throttle_count(host) == 7
    assert read_turbo(host) is None
    assert read_turbo(FakeHost(files={f"{CPU}/intel_pstate/no_turbo": "1\n"})) == "off"
    assert read_turbo(FakeHost(files={f"{CPU}/cpufreq/boost": "1\n"})) == "on"
    assert read_governors(FakeHost()) == ()


def test_virtualisation() -> None:
    vm, container = ("systemd-detect-virt", "--vm"), ("systemd-detect-virt", "--container")
    none = {vm: completed(vm, "none\n", exit_code=1), container: completed(container, "none\n", exit_code=1)}
    assert read_virtualisation(FakeHost(none), None) == "none"
    nested = {**none, container: completed(container, "docker\n")}
    cpu = parse_lscpu(_recorded("lscpu-2.38.1-amd-kvm.json"))
    assert read_virtualisation(FakeHost(nested), cpu) == "kvm, docker"
    assert read_virtualisation(FakeHost(missing_programs=True), cpu) == "kvm"


def test_only_parameters_that_matter_to_speed_are_told() -> None:
    line = "BOOT_IMAGE=/vmlinuz root=UUID=1234 mitigations=off nosmt ds=secret isolcpus=2,3 quiet"
    assert parse_command_line(line) == "mitigations=off nosmt isolcpus=2,3"


def test_machine_id_is_stable_and_does_not_show_the_real_one() -> None:
    one = FakeHost(files={"/etc/machine-id": "0123456789abcdef0123456789abcdef\n"})
    found = read_machine_id(one, None, 0)
    assert found == read_machine_id(one, None, 8 << 30)
    assert len(found) == 16
    assert found not in "0123456789abcdef" * 2
    empty = FakeHost(files={"/etc/machine-id": "\n", "/proc/sys/kernel/hostname": "db1\n"})
    assert read_machine_id(empty, None, 8 << 30) != read_machine_id(empty, None, 16 << 30)


@pytest.mark.parametrize(
    ("parents", "text"),
    [
        ([("/dev/vda", "disk")], "/dev/vda"),
        ([("/dev/nvme0n1p2", "part"), ("/dev/nvme0n1 (X 990)", "disk")], "/dev/nvme0n1p2 (X 990)"),
        (
            [("/dev/mapper/vg-root", "lvm"), ("/dev/sda3", "part"), ("/dev/sda", "disk")],
            "/dev/mapper/vg-root (lvm) on /dev/sda",
        ),
        (
            [
                ("/dev/md0", "raid1"),
                ("/dev/sda1", "part"),
                ("/dev/sda", "disk"),
                ("/dev/sdb1", "part"),
                ("/dev/sdb", "disk"),
            ],
            "/dev/md0 (raid1) on /dev/sda, /dev/sdb",
        ),
    ],
)
def test_devices_in_words(parents: list[tuple[str, str]], text: str) -> None:
    assert render_device(tuple(parents)) == text


def test_lsblk_inverse_names_a_device_and_its_parents() -> None:
    disk = '{"path":"/dev/sda","type":"disk","model":"A "}'
    text = f'{{"blockdevices":[{{"path":"/dev/sda1","type":"part","model":null,"children":[{disk}]}}]}}'
    assert parse_parents(text) == (("/dev/sda1", "part"), ("/dev/sda (A)", "disk"))


def test_medium_of_memory_network_and_pools() -> None:
    def host(source: str, filesystem: str) -> FakeHost:
        entry = f'{{"target":"/x","source":"{source}","fstype":"{filesystem}","options":"rw"}}'
        argv = ("findmnt", "-J", "-o", "TARGET,SOURCE,FSTYPE,OPTIONS", "-T", "/x")
        fake = FakeHost({argv: completed(argv, f'{{"filesystems":[{entry}]}}')}, missing_programs=True)
        fake.make_directory("/x")
        return fake

    assert facts.medium(host("tmpfs", "tmpfs"), "/x") == "loop file on tmpfs (memory)"
    assert facts.medium(host("pool/db", "zfs"), "/x", loop=False) == "zfs dataset pool/db"
    assert facts.medium(host("nas:/db", "nfs4"), "/x", loop=False) == "nfs4 on nas:/db"
    assert facts.medium(host("/dev/vda", "ext4"), "/x/not/yet/made") == "loop file on ext4 on /dev/vda"


def test_facts_of_this_machine() -> None:
    host = LocalHost()
    found = facts.gather(host, sample_s=0.05)
    again = facts.gather(host, sample_s=0.05)
    assert found.checked == again.checked
    assert {"machine id", "kernel", "CPU model", "CPUs", "memory", "clock source", "CPU governor"} <= set(found.checked)
    assert found.checked["kernel"] == Path("/proc/sys/kernel/osrelease").read_text().strip()
    assert "vm.dirty_ratio" in found.told
    assert not [text for text in found.told.values() if text.startswith("not understood")]


def test_facts_of_a_bare_host_are_unknown_not_errors() -> None:
    found = facts.gather(FakeHost(missing_programs=True))
    assert found.checked["CPU model"] == "unknown"
    assert found.checked["CPU governor"] == "not governed"
    assert found.told["busy processes"] == "none"
