"""Capabilities: what is missing, why, and the command that installs it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from fake_host import FakeHost, completed, opening, refused
from pgstrata.host.capabilities import FIRST
from pgstrata.host.protocol import Completed
from pgstrata.spec.layers.btrfs import Btrfs
from pgstrata.spec.layers.devices import LoopDevice
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.layers.lvm import Lvm
from pgstrata.spec.layers.md import Md
from pgstrata.spec.layers.nfs import Nfs
from pgstrata.spec.layers.not_built import Existing
from pgstrata.spec.layers.xfs import Xfs
from pgstrata.spec.layers.zfs import Zfs
from pgstrata.spec.stack import Kernel, Stack, Volume
from pgstrata.stack.block.loop import ATTACHABLE
from pgstrata.stack.network import CLUSTER
from pgstrata.stack.preflight import known_capabilities, missing, required_for, unsupported_on

OS = {
    "debian": "ID=debian\nVERSION_ID=12\n",
    "ubuntu": "ID=ubuntu\nID_LIKE=debian\n",
    "rhel": 'ID="rocky"\nID_LIKE="rhel centos fedora"\n',
    "fedora": "ID=fedora\n",
    "suse": "ID=opensuse-leap\nID_LIKE=suse\n",
    "alpine": 'NAME="Alpine Linux"\nID=alpine\nVERSION_ID=3.20.3\n',
    "arch": 'NAME="Arch Linux"\nID=arch\nBUILD_ID=rolling\n',
    "manjaro": "ID=manjaro\nID_LIKE=arch\n",
    "unknown": "ID=gentoo\n",
}
UNAME = ("uname", "-m")


def _bare(family: str, files: Mapping[str, str] | None = None, *, own_kernel: bool = True) -> FakeHost:
    """A host without any program or module."""
    given = {"/etc/os-release": OS[family], "/proc/sys/kernel/osrelease": "6.1.0-21\n"}
    if own_kernel:
        given["/lib/modules/6.1.0-21/modules.dep"] = ""
    commands = {UNAME: completed(UNAME, "x86_64\n")}
    return FakeHost(commands, files={**given, **(files or {})}, missing_programs=True)


@pytest.mark.parametrize(
    ("family", "name", "install"),
    [
        ("debian", "fs.xfs", "apt-get install linux-image-amd64 xfsprogs"),
        ("debian", "fs.zfs", "apt-get install linux-headers-amd64 zfs-dkms zfsutils-linux"),
        ("ubuntu", "fs.zfs", "apt-get install linux-modules-extra-6.1.0-21 zfsutils-linux"),
        ("ubuntu", "fs.nfs.server", "apt-get install linux-modules-extra-6.1.0-21 nfs-kernel-server"),
        ("rhel", "block.lvm", "dnf install kernel-modules-6.1.0-21 kernel-modules-extra-6.1.0-21 lvm2"),
        ("rhel", "fs.nfs.client", "dnf install kernel-modules-6.1.0-21 kernel-modules-extra-6.1.0-21 nfs-utils"),
        ("fedora", "fio", "dnf install fio"),
        ("suse", "fs.btrfs", "zypper install kernel-default btrfsprogs"),
        ("suse", "fio", "zypper install fio"),
        ("alpine", "fs.btrfs", "apk add linux-lts btrfs-progs"),
        ("alpine", "fs.zfs", "apk add zfs-lts zfs"),
        ("alpine", "block.luks", "apk add linux-lts cryptsetup"),
        ("arch", "fs.nfs.server", "pacman -S linux nfs-utils"),
        ("manjaro", "fs.xfs", "pacman -S linux xfsprogs"),
        ("unknown", "fio", ""),
        ("debian", "pgpool", "apt-get install pgpool2"),
        ("rhel", "pgpool", ""),
        ("rhel", "pgbouncer", "dnf install pgbouncer"),
    ],
)
def test_what_is_missing_comes_with_the_command_that_installs_it(family: str, name: str, install: str) -> None:
    (one,) = missing(_bare(family), [name])
    assert (one.name, one.install) == (name, install)
    assert one.hint


def test_reasons_name_kernel_and_programs() -> None:
    (one,) = missing(_bare("debian"), ["fs.xfs"])
    assert one.text == "fs.xfs: the kernel has no xfs; mkfs.xfs is not installed"
    (only_tool,) = missing(_bare("debian", {"/proc/filesystems": "\txfs\n"}), ["fs.xfs"])
    assert only_tool.hint == "apt-get install xfsprogs"
    (only_kernel,) = missing(_bare("debian", {"/usr/sbin/mkfs.xfs": ""}), ["fs.xfs"])
    assert only_kernel.hint == "apt-get install linux-image-amd64; or use a machine of the lab: --host lab"


def test_nothing_is_missing_where_everything_is() -> None:
    host = _bare("debian", {"/proc/filesystems": "\txfs\n", "/usr/sbin/mkfs.xfs": ""})
    assert missing(host, ["fs.xfs", "fs.xfs"]) == ()


def test_a_kernel_from_elsewhere_needs_the_distributions_own() -> None:
    (one,) = missing(_bare("ubuntu", own_kernel=False), ["block.md.raid1"])
    assert one.install == "apt-get install linux-image-generic mdadm"
    assert one.advice.startswith("then boot that kernel")


def test_rhel_has_no_btrfs_to_install() -> None:
    (one,) = missing(_bare("rhel"), ["fs.btrfs"])
    assert one.install == "dnf install btrfs-progs"
    assert "the kernel of this distribution has no btrfs" in one.advice


def test_rights_and_kernel_options_come_with_advice() -> None:
    said = {("id", "-u"): "1000\n", ("id", "-un"): "anna\n"}
    asked: dict[tuple[str, ...], Completed] = {argv: completed(argv, text) for argv, text in said.items()}
    host = FakeHost({**asked, UNAME: completed(UNAME, "x86_64\n")}, files={"/etc/os-release": OS["debian"]})
    root, psi = missing(host, ["root", "psi"])
    assert root.reason == "commands run as anna, not as root"
    assert root.hint.startswith("run pgstrata as root")
    assert "or compare existing directories: dir:/path" in root.hint
    assert psi.hint == "boot with psi=1 (Linux 4.20 and later)"


@pytest.mark.parametrize(
    ("stack", "names"),
    [
        (Stack(name="a", data=Volume(fs=Ext4())), ("root", "block.loop", "fs.ext4")),
        (Stack(name="a", data=Volume(fs=Existing(path="/mnt"))), ()),
        (
            Stack(name="a", data=Volume(fs=Existing(path="/mnt")), kernel=Kernel(sysctl={"vm.swappiness": "1"})),
            ("root",),
        ),
        (
            Stack(
                name="a",
                data=Volume(fs=Existing(path="/mnt")),
                kernel=Kernel.model_validate({"queue": {"read_ahead_kb": 0}}),
            ),
            ("root", "settings.queue"),
        ),
        (
            Stack(
                name="a",
                data=Volume(device=LoopDevice(count=4), layers=(Md(level="raid6"), Lvm(layout="thin")), fs=Xfs()),
            ),
            ("root", "block.loop", "block.md.raid456", "block.lvm", "block.lvm.thin", "fs.xfs"),
        ),
        (
            Stack(name="a", data=Volume(fs=Zfs()), wal=Volume(fs=Btrfs())),
            ("root", "block.loop", "fs.zfs", "fs.btrfs"),
        ),
        (
            Stack(name="a", data=Volume(fs=Nfs(export=Xfs()))),
            ("root", "block.loop", "fs.xfs", "fs.nfs.server", "fs.nfs.client"),
        ),
        (Stack(name="a", data=Volume(fs=Nfs(server="nas:/db"))), ("root", "fs.nfs.client")),
    ],
)
def test_what_a_stack_needs(stack: Stack, names: tuple[str, ...]) -> None:
    assert required_for(stack) == names
    assert set(names) <= set(known_capabilities())


MOUNT = ("mount", "--internal-only", "--types", "pgstrata-none", "none", "/")
NOBODY_KNOWS_IT = "mount: /: unknown filesystem type 'pgstrata-none'.\n"
ROOT = "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n"


@pytest.mark.parametrize(
    ("status", "said", "problem"),
    [
        (ROOT, NOBODY_KNOWS_IT, None),
        (ROOT, "mount: /: permission denied.\n", "denies mount(2) to root: mount: /: permission denied."),
        (ROOT, "mount: /: cannot mount none read-only.\n", "a seccomp filter or a security module denies"),
        ("Uid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\n", "", "no CAP_SYS_ADMIN"),
        ("Uid:\t0\t1000\t0\t0\nCapEff:\t0000000000000000\n", "", None),
        ("", "", None),
    ],
)
def test_root_of_a_container_may_not_mount(status: str, said: str, problem: str | None) -> None:
    asked = {MOUNT: completed(MOUNT, exit_code=32, stderr=said)} if said else {}
    found = FIRST[0].needs[1].problem(FakeHost(asked, files={"/proc/self/status": status}))
    assert found == problem if problem is None else problem in (found or "")


QUEUES = [f"/sys/block/{name}/queue/read_ahead_kb" for name in ("sda", "sdb")]


@pytest.mark.parametrize(
    ("withheld", "reason"), [(0, ""), (1, ""), (2, f"settings.queue: {QUEUES[1]}: Read-only file system")]
)
def test_queues_can_be_set_where_one_of_them_can(withheld: int, reason: str) -> None:
    commands = {opening(path): completed(opening(path)) for path in QUEUES}
    commands |= {opening(path): refused(path, "Read-only file system") for path in QUEUES[:withheld]}
    host = FakeHost({**commands, UNAME: completed(UNAME, "x86_64\n")}, files=dict.fromkeys(QUEUES, "128\n"))
    assert "".join(one.text for one in missing(host, ["settings.queue"])) == reason
    assert all("--privileged" in one.hint for one in missing(host, ["settings.queue"]))


@pytest.mark.parametrize(
    ("refusals", "problem"),
    [
        ({}, None),
        ({"/dev/loop10": "No such file or directory"}, None),
        (
            {"/dev/loop10": "No such file or directory", "/dev/loop2": "Operation not permitted"},
            "/dev/loop2: Operation not permitted",
        ),
    ],
)
def test_a_free_loop_device_must_open(refusals: Mapping[str, str], problem: str | None) -> None:
    commands = {opening(node): completed(opening(node)) for node in ("/dev/loop2", "/dev/loop10")}
    commands |= {opening(node): refused(node, why) for node, why in refusals.items()}
    files = {"/sys/block/loop1/loop/backing_file": "/x", "/sys/block/loop2/size": "0", "/sys/block/loop10/size": "0"}
    assert ATTACHABLE[1].problem(FakeHost(commands, files={**files, "/sys/block/sda/size": "1"})) == problem


@pytest.mark.parametrize("nodes_there", [True, False])
def test_where_every_loop_device_is_attached_their_nodes_must_be_there(nodes_there: bool) -> None:
    node, why = "/dev/loop1", "No such file or directory"
    files = {"/sys/block/loop1/loop/backing_file": "/x", **({node: ""} if nodes_there else {})}
    problem = ATTACHABLE[1].problem(FakeHost({opening(node): refused(node, why)}, files=files))
    assert problem == (None if nodes_there else f"{node}: {why}")


@pytest.mark.parametrize(
    ("code", "said", "problem"),
    [
        (0, "", None),
        (
            1,
            "unshare: unshare failed: No space left on device\n",
            "no network namespace can be made: unshare: unshare f",
        ),
    ],
)
def test_a_cluster_needs_network_namespaces(code: int, said: str, problem: str | None) -> None:
    (need,) = (need for need in known_capabilities()[CLUSTER].needs if "max_net_namespaces" in str(need.advice))
    argv = ("unshare", "--net", "true")
    found = need.problem(FakeHost({argv: completed(argv, exit_code=code, stderr=said)}))
    assert found == problem if problem is None else (found or "").startswith(problem)


def test_a_setting_that_cannot_be_written_leaves_its_stack_out() -> None:
    path, thp = "/proc/sys/vm/swappiness", "/sys/kernel/mm/transparent_hugepage/enabled"
    stacks = [
        Stack(name=name, data=Volume(fs=Existing(path="/mnt")), kernel=Kernel.model_validate(kernel))
        for name, kernel in {
            "none": {},
            "vm": {"sysctl": {"vm.swappiness": "1"}},
            "thp": {"transparent_hugepage": "never"},
            "both": {"sysctl": {"vm.swappiness": "1", "vm.no_such": "1"}},
        }.items()
    ]
    root: dict[tuple[str, ...], Completed] = {
        ("id", "-u"): completed((), "0\n"),
        ("id", "-un"): completed((), "root\n"),
    }
    answers = {opening(path): refused(path, "Read-only file system"), opening(thp): completed(opening(thp))}
    host = FakeHost({**root, **answers}, files={path: "60\n", thp: "[always] never\n"})
    vm, both = unsupported_on(host, stacks)
    why = f"vm.swappiness cannot be set: {path}: Read-only file system"
    assert (vm.stack, vm.reason) == ("vm", why)
    assert "--privileged" in vm.hint
    assert (both.stack, both.reason) == ("both", f"{why}; the kernel has no setting vm.no_such")
    assert [one.argv for one in host.asked].count(opening(path)) == 1
