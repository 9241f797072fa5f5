"""Modelled disks as block devices of ublk: on a lab machine whose kernel has the driver; the image's own lacks it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench import GoldenCluster, context, live
from newer_kernel import with_newer_kernel
from remains import remains
from test_power_cuts import cut

from awaiting import wait_until
from built import differences
from pgstrata.host.delivery import deliver, program_call
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import CommandFailed, Host, command
from pgstrata.host.ssh import SshHost
from pgstrata.lab import machines
from pgstrata.lab.image import Image
from pgstrata.lab.machine import connect_machine
from pgstrata.lab.qemu import MachineSpec
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.stack.build import attest, build
from pgstrata.stack.journal import Journal, failures
from pgstrata.stack.plan import plan_stack

pytestmark = pytest.mark.xdist_group("ublk")

NAME = f"test-ublk-{os.getpid()}"
FOLDER = "/var/tmp/pgstrata-test-ublk"
OTHER = f"{FOLDER}.other"
MOUNT = f"{FOLDER}.mount"
MIB = 1 << 20
DEVICES = "/sys/class/ublk-char"


@pytest.fixture(scope="module")
def machine_with_ublk(
    here: LocalHost, image: Image, tell: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SshHost]:
    newer = with_newer_kernel(here, image, tmp_path_factory.mktemp("kernel"))
    (started,) = machines.up(here, newer, [MachineSpec(name=NAME, cpus=1, memory_bytes=3 << 30)], say=tell, owned=True)
    host = connect_machine(started)
    try:
        host.run(command("depmod"))
        host.run(command("modprobe", "--all", "ublk_drv", "loop"))
        deliver(host)
        yield host
    finally:
        host.close()
        assert machines.down(here, NAME) == (NAME,)


@pytest.fixture
def host(machine_with_ublk: SshHost) -> Iterator[SshHost]:
    """The machine; fails a test that leaves anything on it."""
    yield machine_with_ublk
    assert (remains(machine_with_ublk), machine_with_ublk.list_directory(DEVICES)) == ([], ())


def call(host: Host, *words: str, check: bool = True) -> str:
    """What strata-disk says there, of an error where there is one."""
    said = host.run(program_call(*words), check=check)
    return said.stdout.strip() or said.stderr.strip()


@pytest.fixture
def folder(host: Host) -> Iterator[str]:
    """Of a daemon with a disk in memory, `disk`."""
    call(host, "serve", FOLDER, "--background")
    call(host, "add", FOLDER, "disk", "--size", str(512 * MIB))
    yield FOLDER
    host.run(command("umount", MOUNT), check=False)
    call(host, "stop", FOLDER)
    host.run(command("rm", "--recursive", "--force", FOLDER, MOUNT))


def mounted(host: Host, node: str) -> None:
    host.make_directory(MOUNT)
    host.run(command("mount", node, MOUNT))


def test_a_stack_stands_on_it(host: Host) -> None:
    stack = parse_stack("media(sata-ssd,2,stretch=10)/btrfs(raid1)@wal=media(none)/xfs")
    lived = live(host, GoldenCluster.on(host), stack)
    rows = {row.what: row.actual for row in lived.attested}
    assert (rows["ublk data.0 disk"], rows["ublk data.1 disk"], rows["ublk wal.0 disk"]) == ("disk0", "disk1", "disk0")
    assert rows["media data.1 flush"] == "arrives"


def test_what_was_synced_survives_a_cut(host: Host, folder: str) -> None:
    node = call(host, "attach", folder, "disk")
    assert node.startswith("/dev/ublkb")
    host.run(command("mkfs.ext4", "-q", node))
    mounted(host, node)
    write = f"head --bytes={8 * MIB} /dev/urandom > {MOUNT}/synced; sync {MOUNT}/synced; sha256sum < {MOUNT}/synced"
    digest = host.run(command("sh", "-euc", write)).stdout
    host.run(command("sh", "-euc", f"head --bytes={MIB} /dev/urandom > {MOUNT}/unsynced"))
    assert "busy" in call(host, "detach", folder, node, check=False)
    assert "is open" in call(host, "remove", folder, "disk", check=False)
    call(host, "ask", folder, json.dumps({"op": "cut", "keep": "random", "torn": True, "seed": 3}))
    after = host.run(command("sh", "-euc", f"echo > {MOUNT}/after; sync {MOUNT}/after"), check=False)
    assert after.exit_code != 0
    host.run(command("umount", MOUNT))
    call(host, "detach", folder, node)
    call(host, "ask", folder, '{"op": "power_on", "disk": "disk"}')
    mounted(host, call(host, "attach", folder, "disk"))
    assert host.run(command("sh", "-euc", f"sha256sum < {MOUNT}/synced")).stdout == digest
    assert host.status(f"{MOUNT}/after") is None


def test_zeroes_and_discards_of_a_device_are_zeroes(host: Host, folder: str) -> None:
    node = call(host, "attach", folder, "disk")
    host.run(command("sh", "-euc", f"head --bytes={8 * MIB} /dev/urandom > {node}; sync {node}"))
    host.run(command("blkdiscard", "--offset", "0", "--length", str(MIB), node))
    host.run(command("blkdiscard", "--zeroout", "--offset", str(2 * MIB), "--length", str(MIB), node))
    blank = f"cmp --bytes={MIB} {node} /dev/zero; cmp --bytes={MIB} --ignore-initial={2 * MIB}:0 {node} /dev/zero"
    host.run(command("sh", "-euc", blank))
    between = host.run(command("cmp", f"--bytes={MIB}", f"--ignore-initial={MIB}:0", node, "/dev/zero"), check=False)
    assert between.exit_code == 1
    (disk,) = json.loads(call(host, "stats", folder))["disks"]
    assert (disk["zeroes"], disk["errors"]) == (2, 0)


def reads(host: Host, node: str) -> bool:
    """Whether the device gives its first page."""
    read = command("dd", f"if={node}", "of=/dev/null", "iflag=direct", "bs=4k", "count=1")
    return host.run(read, check=False).exit_code == 0


def test_only_the_devices_of_a_dead_daemon_are_taken_away(host: Host, folder: str) -> None:
    call(host, "serve", OTHER, "--background")
    call(host, "add", OTHER, "disk", "--size", str(MIB))
    alive = call(host, "attach", OTHER, "disk")
    dead = call(host, "attach", folder, "disk")
    host.run(command("kill", "-KILL", host.read_text(f"{folder}/lock")))
    wait_until(lambda: not reads(host, dead), "the dead daemon's device has no disk any more")
    assert len(host.list_directory(DEVICES)) == 2
    call(host, "stop", folder)
    assert len(host.list_directory(DEVICES)) == 1
    assert reads(host, alive)
    call(host, "stop", OTHER)
    host.remove(OTHER)


FIO = ("--name=load", "--direct=1", "--ioengine=libaio", "--iodepth=32", "--rw=randrw", "--bsrange=4k-256k")


def test_what_many_requests_wrote_at_once_is_read_back(host: Host, folder: str) -> None:
    node = call(host, "attach", folder, "disk")
    verified = ("--verify=crc32c", "--size=64M", "--fsync=16")
    host.run(command("fio", f"--filename={node}", *FIO, *verified, timeout_s=300))
    (disk,) = json.loads(call(host, "stats", folder))["disks"]
    assert (disk["errors"], disk["flushes"] > 1) == (0, True)


@pytest.mark.parametrize("name", ["TERM", "KILL"])
def test_a_daemon_that_ends_under_load_leaves_nobody_waiting(host: Host, folder: str, name: str) -> None:
    node = call(host, "attach", folder, "disk")
    endless = f"fio --filename={node} {' '.join(FIO)} --time_based --runtime=1h > /dev/null 2>&1 & echo $!"
    load = host.run(command("sh", "-euc", endless)).stdout.strip()
    wait_until(lambda: json.loads(call(host, "stats", folder))["disks"][0]["writes"] > 100, "the disk is loaded")
    host.run(command("kill", f"-{name}", host.read_text(f"{folder}/lock")))
    wait_until(lambda: host.status(f"/proc/{load}") is None, "who loads the disk has been told of an error")
    assert not reads(host, node)


def test_a_mounted_device_whose_daemon_is_stopped_goes_with_its_mount(host: Host, folder: str) -> None:
    node = call(host, "attach", folder, "disk")
    host.run(command("mkfs.xfs", "-q", node))
    mounted(host, node)
    call(host, "stop", folder)
    assert host.run(command("sh", "-euc", f"echo > {MOUNT}/file; sync {MOUNT}/file"), check=False).exit_code != 0
    host.run(command("umount", MOUNT))
    assert host.status(node) is None


def test_a_stack_whose_daemon_dies_is_undone(host: Host) -> None:
    plan = plan_stack(parse_stack("media(nvme,stretch=10)/ext4"), context())
    journal = Journal.create(host, plan.context.trial_id)
    try:
        built = build(host, plan, journal)
        assert differences(attest(host, plan, built)) == {}
        host.run(command("kill", "-KILL", host.read_text(f"{plan.context.work_directory}/data.media/lock")))
        with pytest.raises(CommandFailed, match=built.bindings["data.0"]):
            attest(host, plan, built)
    finally:
        assert failures(journal.undo_all()) == ()


def test_states_of_a_stack_recorded_on_it_come_up(host: Host, tmp_path: Path) -> None:
    _, states = cut(host, "ext4", 3, 6, tmp_path / "out")
    assert [(state.verdict, state.reason) for state in states] == [("held", "")] * 3


def test_where_io_uring_is_switched_off_it_is_a_loop_device(host: Host, folder: str) -> None:
    setting = "/proc/sys/kernel/io_uring_disabled"
    host.write_text(setting, "2\n")
    try:
        said = host.run(program_call("attach", folder, "disk"))
        refused = call(host, "attach", folder, "disk", "--front", "ublk", check=False)
    finally:
        host.write_text(setting, "0\n")
    assert said.stdout.startswith("/dev/loop")
    assert "io_uring may not be used here; a loop device instead" in said.stderr
    assert "Operation not permitted" in refused
    assert "no loop device over a disk" in call(host, "detach", folder, "/dev/vda", check=False)
    call(host, "detach", folder, said.stdout.strip())


def test_calibration_ends_with_the_front_that_stacks_stand_on(host: Host) -> None:
    found = json.loads(call(host, "calibrate", FOLDER, "--seconds", "0.1"))
    host.remove(FOLDER)
    assert [front["front"] for front in found["fronts"]] == ["fuse", "loop", "ublk"]
