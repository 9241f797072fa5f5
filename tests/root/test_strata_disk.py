"""The daemon of strata-disk with real loop devices and filesystems on its disks."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from apart import apart
from awaiting import is_running, wait_until
from pgstrata.cli.main import app

PROGRAM = Path(sys.executable).parent / "strata-disk"
MIB = 1 << 20
LOG_DISCARD, LOG_MARK = 4, 8
"""drivers/md/dm-log-writes.c"""
CAP_SYS_NICE, CAP_SYS_RESOURCE = 23, 24
"""capability.h"""
PATIENCE_S = 120
"""Nothing takes as long, however busy the machine is: what does, hangs."""

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="strata-disk is not built: cargo is missing")

MAKE = {"ext4": ["mkfs.ext4", "-q"], "xfs": ["mkfs.xfs", "-q"], "btrfs": ["mkfs.btrfs", "-q"]}


def run(*argv: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0 or not check, (argv, done.stderr)
    return done


class Daemon:
    """A daemon in a folder of the test, and the loop devices and mounts made on its disks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pid = 0
        self.loops: list[str] = []
        self.mounts: list[Path] = []

    def start(self, *options: object) -> None:
        self.pid = int(run(PROGRAM, "serve", self.folder, "--background", *options).stdout.split()[1])

    def add(self, name: str, *options: object, size: int = 512 * MIB) -> None:
        sized = () if {"--snapshot", "--base"} & set(options) else ("--size", size)
        run(PROGRAM, "add", self.folder, name, *sized, *options)

    def ask(self, op: str, **fields: object) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(run(PROGRAM, "ask", self.folder, json.dumps({"op": op, **fields})).stdout)
        return answer

    def refusal(self, *words: object) -> str:
        done = run(PROGRAM, words[0], self.folder, *words[1:], check=False)
        assert done.returncode == 1
        return done.stderr

    def statistics(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(disk for disk in self.ask("stats")["disks"] if disk["name"] == name)
        return found

    def attach(self, name: str) -> str:
        node = run(PROGRAM, "attach", self.folder, name, "--front", "loop").stdout.strip()
        self.loops.append(node)
        return node

    def detach(self, node: str) -> None:
        run(PROGRAM, "detach", self.folder, node)
        self.loops.remove(node)

    def mount(self, node: str) -> Path:
        at = self.folder.parent / f"mount{len(self.mounts)}"
        at.mkdir(exist_ok=True)
        run("mount", node, at)
        self.mounts.append(at)
        return at

    def unmount(self, at: Path) -> None:
        run("umount", at)
        self.mounts.remove(at)

    def removed(self, name: str) -> bool:
        """Whether it could be removed: the kernel closes the file of a detached loop device a moment later."""
        return run(PROGRAM, "remove", self.folder, name, check=False).returncode == 0

    def close(self) -> None:
        for at in self.mounts:
            run("umount", "--lazy", at, check=False)
        for node in self.loops:
            run("losetup", "--detach", node, check=False)
        run(PROGRAM, "stop", self.folder)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "daemon")
    made.start()
    yield made
    made.close()


def write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


@pytest.mark.parametrize("fs", MAKE)
def test_what_was_synced_survives_a_cut_and_the_filesystem_mounts(daemon: Daemon, fs: str) -> None:
    daemon.add("disk")
    node = daemon.attach("disk")
    run(*MAKE[fs], node)
    at = daemon.mount(node)
    write_synced(at / "synced", b"a" * MIB)
    (at / "unsynced").write_bytes(b"b" * MIB)
    left = daemon.ask("cut", keep="random", torn=True, seed=3)
    assert set(left["disks"]) == {"disk"}
    with pytest.raises(OSError):  # noqa: PT011  # EIO, or EROFS where the filesystem has noticed already
        write_synced(at / "after", b"c")
    daemon.unmount(at)
    daemon.detach(node)
    daemon.ask("power_on", disk="disk")
    again = daemon.attach("disk")
    at = daemon.mount(again)
    assert (at / "synced").read_bytes() == b"a" * MIB
    assert not (at / "after").exists()
    daemon.unmount(at)
    daemon.detach(again)


def test_only_loop_devices_over_its_own_disks_are_detached(daemon: Daemon, tmp_path: Path) -> None:
    daemon.add("disk")
    other = tmp_path / "other"
    other.write_bytes(bytes(MIB))
    node = run("losetup", "--find", "--show", other).stdout.strip()
    try:
        assert f"{node} is no loop device over a disk" in daemon.refusal("detach", node)
        assert str(other) in run("losetup", "--list", "--noheadings", node).stdout
    finally:
        run("losetup", "--detach", node)
    assert "is none of this daemon's devices" in daemon.refusal("detach", "/dev/ublkb0")


def test_a_disk_that_ignores_flushes_loses_what_was_synced(daemon: Daemon) -> None:
    daemon.add("disk")
    node = daemon.attach("disk")
    run(*MAKE["ext4"], node)
    daemon.ask("lie", disk="disk", flushes="all")
    at = daemon.mount(node)
    write_synced(at / "synced", b"a" * MIB)
    daemon.ask("cut")
    daemon.unmount(at)
    daemon.detach(node)
    daemon.ask("power_on", disk="disk")
    node = daemon.attach("disk")
    at = daemon.mount(node)
    assert not (at / "synced").exists()


def test_requests_arrive_as_what_they_are(daemon: Daemon) -> None:
    daemon.add("disk")
    node = daemon.attach("disk")
    assert Path(f"/sys/block/{Path(node).name}/loop/dio").read_text().strip() == "1"
    before = daemon.statistics("disk")
    run("dd", "if=/dev/zero", f"of={node}", "bs=1M", "count=8", "oflag=direct", "conv=fsync")
    run("blkdiscard", "--offset", MIB, "--length", MIB, node)
    after = daemon.statistics("disk")
    assert after["written_bytes"] - before["written_bytes"] == 8 * MIB
    assert after["flushes"] > before["flushes"]
    assert after["zeroes"] > before["zeroes"]


@pytest.mark.parametrize("media", ["hdd-7200", "sata-ssd", "cloud-volume"])
def test_a_modelled_medium_accounts_for_its_time(daemon: Daemon, media: str) -> None:
    daemon.add("disk", "--media", media, "--stretch", "1.5", size=64 * MIB)
    node = daemon.attach("disk")
    run("dd", "if=/dev/zero", f"of={node}", "bs=64k", "count=20", "oflag=direct", "conv=fsync")
    run("dd", f"if={node}", "of=/dev/null", "bs=4k", "count=20", "iflag=direct", "skip=5000")
    found = daemon.statistics("disk")
    assert found["effort"]["busy_s"] > 0
    assert found["queued_s"] > 0
    assert (found["effort"]["seek_s"] > 0) == (media == "hdd-7200")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_daemon_that_ends_under_load_gives_errors_and_nothing_hangs(
    own_mounts: None, daemon: Daemon, number: int
) -> None:
    daemon.add("disk", "--media", "hdd-7200")
    node = daemon.attach("disk")
    run(*MAKE["ext4"], node)
    at = daemon.mount(node)
    load = [
        sys.executable,
        "-c",
        f"import os\nf = open({str(at / 'file')!r}, 'wb', 0)\nwhile f.write(b'x' * 8192): os.fsync(f)",
    ]
    with subprocess.Popen(load, stderr=subprocess.PIPE) as writer:
        wait_until(lambda: daemon.statistics("disk")["flushes"] > 5, "flushes of the load")
        os.kill(daemon.pid, number)
        _, errors = writer.communicate(timeout=PATIENCE_S)
    assert b"OSError" in errors
    daemon.unmount(at)
    daemon.detach(node)
    run(PROGRAM, "stop", daemon.folder)
    assert not (daemon.folder / "control").exists()
    daemon.start()
    assert daemon.ask("stats")["disks"] == []


def test_faults_reach_the_reader(daemon: Daemon) -> None:
    daemon.add("disk", size=16 * MIB)
    node = daemon.attach("disk")
    daemon.ask("fault", disk="disk", fault={"on": "read", "effect": "error", "from": MIB, "to": 2 * MIB})

    def read(mib: int) -> int:
        one = [f"skip={mib}", "bs=1M", "count=1", "iflag=direct"]
        return run("dd", f"if={node}", "of=/dev/null", *one, check=False).returncode

    assert (read(0), read(1), read(2)) == (0, 1, 0)
    daemon.ask("clear_faults", disk="disk")
    assert read(1) == 0


def test_overlays_start_from_a_snapshot_and_keep_apart(daemon: Daemon) -> None:
    daemon.add("disk")
    node = daemon.attach("disk")
    run(*MAKE["ext4"], node)
    at = daemon.mount(node)
    write_synced(at / "below", b"a")
    daemon.unmount(at)
    daemon.detach(node)
    daemon.ask("snapshot", disk="disk", name="loaded")
    for name in ("one", "two"):
        daemon.add(name, "--snapshot", "loaded")
        node = daemon.attach(name)
        at = daemon.mount(node)
        assert sorted(p.name for p in at.iterdir() if p.is_file()) == ["below"]
        write_synced(at / name, b"b")
        daemon.unmount(at)
        daemon.detach(node)
        wait_until(partial(daemon.removed, name), "the disk is closed")


def test_what_is_kept_in_a_file_is_there_again(daemon: Daemon, tmp_path: Path) -> None:
    image = tmp_path / "image"
    for round_ in range(2):
        daemon.add("disk", "--file", image, size=64 * MIB)
        node = daemon.attach("disk")
        if round_ == 0:
            run(*MAKE["ext4"], node)
        at = daemon.mount(node)
        if round_ == 0:
            write_synced(at / "file", b"a" * MIB)
        assert (at / "file").read_bytes() == b"a" * MIB
        daemon.unmount(at)
        daemon.detach(node)
        wait_until(lambda: daemon.removed("disk"), "the disk is closed")


def test_a_state_of_the_log_is_a_disk(daemon: Daemon, tmp_path: Path) -> None:
    recorded, log = Daemon(tmp_path / "recorded"), tmp_path / "log"
    recorded.start("--log", log)
    try:
        recorded.add("disk", "--block", 4096, size=16 * MIB)
        node = recorded.attach("disk")
        assert run("blockdev", "--getss", node).stdout == "4096\n"
        run("dd", "if=/dev/zero", f"of={node}", "bs=4k", "count=1", "oflag=direct", "conv=fsync")
        recorded.ask("mark", text="begin")
        (tmp_path / "new").write_bytes(b"n" * 4096)
        run("dd", f"if={tmp_path / 'new'}", f"of={node}", "bs=4k", "count=1", "oflag=direct")
        recorded.ask("mark", text="end")
    finally:
        recorded.close()
    window = ("--after", "begin", "--until", "end", "--seed", 3)
    lines = run(PROGRAM, "states", log, *window).stdout.splitlines()
    assert lines == run(PROGRAM, "states", log, *window).stdout.splitlines()
    contents = set()
    for number, line in enumerate(lines):
        added = [PROGRAM, "add", daemon.folder, f"state{number}", "--log", log, "--of", "disk"]
        subprocess.run(
            [str(word) for word in added],
            input=line,
            text=True,
            check=True,
            timeout=PATIENCE_S,
            stdout=subprocess.DEVNULL,
        )
        contents.add((daemon.folder / "disks" / f"state{number}").read_bytes()[:4096])
    assert contents == {bytes(4096), b"n" * 4096}
    assert len(lines) == len(contents)
    marks = [json.loads(line)["text"] for line in run(PROGRAM, "marks", log).stdout.splitlines()]
    assert marks == ["begin", "end"]


def replayed(log: bytes, size: int) -> tuple[bytes, list[str]]:
    """The disk after all entries of a log of dm-log-writes, and its marks; read by the kernel's documentation of the
    format (admin-guide/device-mapper/log-writes.rst): a superblock, then entries of a sector, data behind them."""
    magic, version, entries, sector = struct.unpack_from("<QQQL", log)
    assert (magic, version) == (0x6A736677736872, 1)
    content, marks, at = bytearray(size), [], sector
    for _ in range(entries):
        first, count, flags, length = struct.unpack_from("<QQQQ", log, at)
        place = slice(first * sector, (first + count) * sector)
        if flags & LOG_MARK:
            marks.append(log[at + 32 : at + 32 + length].decode())
        elif flags & LOG_DISCARD:
            content[place] = bytes(count * sector)
        else:
            content[place] = log[at + sector : at + sector * (1 + count)]
            at += count * sector
        at += sector
    assert at == len(log)
    return bytes(content), marks


def test_the_exported_log_replayed_is_the_disk(tmp_path: Path) -> None:
    size = 32 * MIB
    daemon = Daemon(tmp_path / "daemon")
    daemon.start("--log", tmp_path / "log")
    try:
        daemon.add("other", size=MIB)
        daemon.add("disk", size=size)
        node = daemon.attach("disk")
        run(*MAKE["ext4"], node)
        at = daemon.mount(node)
        write_synced(at / "file", b"a" * MIB)
        daemon.ask("mark", text="acknowledged")
        (at / "file").unlink()
        run("fstrim", at)
        daemon.unmount(at)
        daemon.detach(node)
        content = (daemon.folder / "disks" / "disk").read_bytes()
    finally:
        daemon.close()
    run(PROGRAM, "export-log", tmp_path / "log", "disk", tmp_path / "exported")
    found, marks = replayed((tmp_path / "exported").read_bytes(), size)
    assert found == content
    assert marks == ["acknowledged", "dm-log-writes-end"]


def test_bad_requests_are_told_and_change_nothing(daemon: Daemon, tmp_path: Path) -> None:
    assert "size is 0" in daemon.refusal("add", "disk", "--size", 0)
    assert "size is needed" in daemon.refusal("add", "disk")
    assert "beyond" in daemon.refusal("add", "disk", "--size", 1 << 60)
    assert "unknown model" in daemon.refusal("add", "disk", "--size", MIB, "--media", "hdd-1")
    assert "larger than the modelled one" in daemon.refusal("add", "disk", "--size", 1 << 42, "--media", "hdd-7200")
    assert "stretch" in daemon.refusal("add", "disk", "--size", MIB, "--stretch", "0.5")
    assert "disk name" in daemon.refusal("add", "../disk", "--size", MIB)
    assert "no snapshot" in daemon.refusal("add", "disk", "--snapshot", "none")
    (tmp_path / "bad.toml").write_text("name = 1")
    assert "model" in daemon.refusal("add", "disk", "--size", MIB, "--media", tmp_path / "bad.toml")
    assert "another daemon" in daemon.refusal("serve")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(daemon.folder / "control"))
        client.sendall(b'\xff\xfe garbage\n{"op": "stats"}\n{"op": "mark", "te')
        answers = client.makefile("rb")
        assert b"no request" in answers.readline()
        assert json.loads(answers.readline())["disks"] == []
        answers.close()
    with socket.socket(socket.AF_UNIX) as client:  # a state names each of its writes
        client.connect(str(daemon.folder / "control"))
        client.sendall(b'{"op": "stats", "more": "' + b"x" * (8 * MIB) + b'"}\n')
        answers = client.makefile("rb")
        assert json.loads(answers.readline())["disks"] == []
        client.sendall(b"x" * (64 * MIB))
        assert json.loads(answers.readline()) == {"ok": False, "error": "the request is longer than 64 MiB"}
        assert answers.readline() == b""
        answers.close()
    assert daemon.ask("stats")["disks"] == []


def refused_where(daemon: Daemon, change: str, *user: str) -> str:
    """What the program says in a mount namespace of its own that was changed."""
    serve = [str(PROGRAM), "serve", str(daemon.folder)]
    told = run(*apart("sh", "-euc", f'{change}\nexec "$@"', "sh", *user, *serve), check=False)
    assert told.returncode == 1
    return told.stderr


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that was not started."""
    made = Daemon(tmp_path / "daemon")
    made.folder.mkdir()
    yield made
    made.close()


def test_without_dev_fuse_the_daemon_says_so(stopped: Daemon) -> None:
    assert "/dev/fuse: No such file" in refused_where(stopped, "mount -t tmpfs none /dev")
    assert not (stopped.folder / "control").exists()


def test_one_who_may_not_mount_is_told_so(stopped: Daemon) -> None:
    said = refused_where(stopped, ":", "setpriv", "--bounding-set=-sys_admin")
    assert f"mount of {stopped.folder}/disks: " in said
    assert not stopped.folder.joinpath("disks").is_mount()


def test_a_folder_on_which_something_is_mounted_is_left_alone(stopped: Daemon) -> None:
    disks = stopped.folder / "disks"
    disks.mkdir()
    said = refused_where(stopped, f"mount -t tmpfs somebody {disks}")
    assert "is a mount point already, of somebody" in said


def test_a_daemon_takes_the_place_of_one_that_was_killed_while_its_disks_were_attached(daemon: Daemon) -> None:
    daemon.add("disk", size=16 * MIB)
    node = daemon.attach("disk")
    os.kill(daemon.pid, signal.SIGKILL)
    wait_until(lambda: not is_running(daemon.pid), "the daemon has ended")
    assert (daemon.folder / "control").exists()
    assert "disks fuse" in Path("/proc/mounts").read_text()
    daemon.start()
    assert daemon.ask("stats")["disks"] == []
    daemon.add("disk", size=16 * MIB)
    again = daemon.attach("disk")
    assert run("dd", f"if={node}", "of=/dev/null", "bs=4k", "count=1", "iflag=direct", check=False).returncode == 1
    run("dd", f"if={again}", "of=/dev/null", "bs=4k", "count=1", "iflag=direct")


def test_where_no_loop_device_is_free_calibration_says_so_and_leaves_nothing(stopped: Daemon) -> None:
    hidden = "mount -t tmpfs none /mnt && cp -a /dev/fuse /dev/null /mnt && mount --move /mnt /dev"
    calibrate = [str(PROGRAM), "calibrate", str(stopped.folder), "--seconds", "0.01"]
    told = run(*apart("sh", "-euc", f'{hidden}\nexec "$@"', "sh", *calibrate), check=False)
    assert told.returncode == 1
    assert "losetup" in told.stderr
    assert not (stopped.folder / "control").exists()


def test_a_folder_may_be_deeper_than_an_address_of_a_socket_is_long(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / ("deep" * 30) / "daemon")
    daemon.start()
    try:
        daemon.add("disk")
        assert daemon.statistics("disk")["writes"] == 0
    finally:
        daemon.close()


def test_an_open_disk_is_not_removed(daemon: Daemon) -> None:
    daemon.add("disk", size=16 * MIB)
    daemon.attach("disk")
    assert "is open" in daemon.refusal("remove", "disk")


class MemoryLimit:
    """A control group of the test's own, version 1 or 2, whose processes get no more than so many bytes."""

    def __init__(self, limit_bytes: int) -> None:
        first = Path("/sys/fs/cgroup/memory")
        self.folder = (first if first.is_dir() else Path("/sys/fs/cgroup")) / f"pgstrata-test-{os.getpid()}"
        self.file, self.reached = ("memory.limit_in_bytes", "memory.failcnt") if first.is_dir() else ("memory.max", "")
        self.limit_bytes = limit_bytes

    def __enter__(self) -> MemoryLimit:
        try:
            self.folder.mkdir()
            (self.folder / self.file).write_text(str(self.limit_bytes))
        except OSError as error:
            pytest.skip(f"no memory control group can be made here: {error}")
        return self

    def __exit__(self, *_: object) -> None:
        wait_until(self._removed, "the control group is empty")

    def _removed(self) -> bool:
        try:
            self.folder.rmdir()
        except OSError:
            return False
        return True

    def run(self, *argv: object) -> str:
        joined = f'echo $$ > {self.folder}/cgroup.procs; exec "$@"'
        return run("sh", "-c", joined, "sh", *argv).stdout

    def was_reached(self) -> bool:
        if self.reached:
            return int((self.folder / self.reached).read_text()) > 0
        return "max 0\n" not in (self.folder / "memory.events").read_text()


def has(capability: int) -> bool:
    """Whether processes here have it."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(line.split()[1], 16) >> capability & 1)


@pytest.mark.skipif(not has(CAP_SYS_NICE), reason="CAP_SYS_NICE is missing: answers of media wait for busy processors")
def test_the_thread_of_due_answers_alone_runs_before_others(daemon: Daemon) -> None:
    def policies() -> dict[str, int]:
        threads = Path(f"/proc/{daemon.pid}/task").iterdir()
        return {(task / "comm").read_text().strip(): os.sched_getscheduler(int(task.name)) for task in threads}

    wait_until(lambda: policies().get("due") == os.SCHED_RR, "the thread has begun")
    assert [policy for name, policy in policies().items() if name != "due"] != []
    assert all(policy == os.SCHED_OTHER for name, policy in policies().items() if name != "due")


@pytest.mark.skipif(not has(CAP_SYS_RESOURCE), reason="CAP_SYS_RESOURCE is missing: without it this hangs")
def test_a_filesystem_that_is_written_beyond_free_memory_does_not_hang(tmp_path: Path) -> None:
    """The daemon and the writer share 128 MiB: what the daemon needs memory for is reclaimed by writing to its disk."""
    size = 320 * MIB
    written = (
        "import os, sys\n"
        "with open(sys.argv[1], 'wb', 0) as out:\n"
        f"    for number in range({size // MIB}): out.write(bytes([number % 251]) * {MIB})\n"
        "    os.fsync(out.fileno())\n"
    )
    daemon = Daemon(tmp_path / "daemon")
    with MemoryLimit(128 * MIB) as limit:
        daemon.pid = int(limit.run(PROGRAM, "serve", daemon.folder, "--background").split()[1])
        try:
            daemon.add("disk", "--media", "sata-ssd-plp", "--file", tmp_path / "image")
            node = daemon.attach("disk")
            run(*MAKE["ext4"], node)
            at = daemon.mount(node)
            limit.run(sys.executable, "-c", written, at / "file")
            assert limit.was_reached()
            with (at / "file").open("rb") as file:
                assert all(file.read(MIB) == bytes([number % 251]) * MIB for number in range(size // MIB))
            assert is_running(daemon.pid)
        finally:
            daemon.close()


def test_doctor_tells_which_media_this_host_can_give(tmp_path: Path) -> None:
    asked = CliRunner().invoke(app, ["doctor", "--media", "--json", "--scratch", str(tmp_path)])
    assert asked.exit_code == 0, asked.output
    found = json.loads(asked.stdout)["modelled_media"]
    assert [one["model"] for one in found] == [
        one["name"] for one in json.loads(run(PROGRAM, "models", "--json").stdout)
    ]
    assert all(one["smallest_stretch"] >= 1 for one in found)
    assert list(tmp_path.iterdir()) == []


def test_calibration_measures_both_fronts_and_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "calibration"
    found = json.loads(run(PROGRAM, "calibrate", folder, "--seconds", "0.05").stdout)
    assert [front["front"] for front in found["fronts"]] == ["fuse", "loop"]
    assert all(rate > 0 for front in found["fronts"] for name, rate in front.items() if name != "front")
    assert all(one["smallest_stretch"] >= 1 for one in found["models"])
    assert str(folder) not in Path("/proc/mounts").read_text()
    assert not (folder / "control").exists()
