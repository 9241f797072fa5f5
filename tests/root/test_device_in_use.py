"""A device that anything uses is refused, whatever the campaign allows, and not written to: one test for each use."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from apart import apart
from pgstrata.errors import PreflightError
from pgstrata.host.local import LocalHost
from pgstrata.spec.layers.devices import DiskDevice
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.stack import Stack, Volume
from pgstrata.stack.build import build
from pgstrata.stack.journal import Journal
from pgstrata.stack.plan import PlanContext, plan_stack
from pgstrata.stack.safety import refuse_or_allow

SIZE_BYTES = 256 * 2**20
HALF = SIZE_BYTES // 2


def _run(*argv: object) -> str:
    words = [str(word) for word in argv]
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=120, env=environment).stdout


@contextmanager
def _running(*argv: str) -> Iterator[None]:
    """A program that says when it is ready, and ends when its standard input does."""
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        try:
            yield
        finally:
            other.stdin.close()
            other.wait(timeout=60)


def _python(script: str, *argument: object) -> list[str]:
    text = f"import sys, os, fcntl, mmap\n{script}\nprint('ready', flush=True)\nsys.stdin.read()"
    return [sys.executable, "-c", text, *map(str, argument)]


@contextmanager
def _loop(*argv: object) -> Iterator[Path]:
    node = _run("losetup", "--find", "--show", *argv).strip()
    try:
        yield Path(node)
    finally:
        _run("losetup", "--detach", node)


def _mounted(source: object, folder: Path) -> list[str]:
    """Mounts in a namespace of its own, where other tests do not see it; only for reading: a filesystem may write to
    its devices long after it was mounted."""
    target = folder / "mnt"
    target.mkdir(exist_ok=True)
    return apart("sh", "-c", f"mount -o ro {source} {target} && echo ready && read answer")


class Use:
    """A file, its loop device, and what is to be undone at the end."""

    def __init__(self, file: Path, device: Path, ends: ExitStack) -> None:
        self.file, self.device, self.folder = file, device, file.parent
        self._ends = ends

    def loop(self, *argv: object) -> Path:
        return self._ends.enter_context(_loop(*argv))

    def running(self, *argv: str) -> None:
        self._ends.enter_context(_running(*argv))

    def at_end(self, *argv: object) -> None:
        self._ends.callback(_run, *argv)


def _mounted_on_a_loop_over_it(use: Use) -> None:
    upper = use.loop("--offset", HALF, use.device)
    _run("mkfs.ext4", "-q", upper)
    use.running(*_mounted(upper, use.folder))


def _loop_over_a_loop_over_it(use: Use) -> None:
    middle = use.loop("--offset", HALF, use.device)
    use.loop("--offset", HALF // 2, middle)


def _loop_over_a_hard_link(use: Use) -> None:
    link = use.folder / "link.img"
    link.hardlink_to(use.file)
    use.loop("--offset", HALF, link)


def _loop_over_a_bind_mount(use: Use) -> None:
    """The path that the kernel shows is one of another namespace."""
    other = use.folder / "other.img"
    other.touch()
    script = f"mount --bind {use.file} {other} && losetup --find --show --offset {HALF} {other} && echo ready && read x"
    with subprocess.Popen(
        apart("sh", "-c", script), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        use.at_end("losetup", "--detach", process.stdout.readline().strip())
        assert process.stdout.readline() == "ready\n"
        process.stdin.close()
        process.wait(timeout=60)


def _open_for_reading(use: Use) -> None:
    use.running(*_python("kept = os.open(sys.argv[1], os.O_RDONLY)", use.device))


def _open_by_another_node(use: Use) -> None:
    number = use.device.stat().st_rdev
    node = use.folder / "node"
    _run("mknod", node, "b", os.major(number), os.minor(number))
    use.running(*_python("kept = os.open(sys.argv[1], os.O_RDONLY)", node))


def _file_open(use: Use) -> None:
    use.running(*_python("kept = os.open(sys.argv[1], os.O_RDWR)", use.file))


def _mapped(use: Use) -> None:
    use.running(*_python("f = open(sys.argv[1], 'r+b'); kept = mmap.mmap(f.fileno(), 4096); f.close()", use.device))


def _locked_with_flock(use: Use) -> None:
    use.running(*_python("kept = open(sys.argv[1]); fcntl.flock(kept, fcntl.LOCK_SH)", use.device))


def _file_locked_with_fcntl(use: Use) -> None:
    use.running(*_python("kept = open(sys.argv[1], 'r+b'); fcntl.lockf(kept, fcntl.LOCK_EX)", use.file))


def _opened_exclusively(use: Use) -> None:
    use.running(*_python("kept = os.open(sys.argv[1], os.O_RDONLY | os.O_EXCL)", use.device))


def _mounted_elsewhere(use: Use) -> None:
    _run("mkfs.ext4", "-q", use.device)
    use.running(*_mounted(use.device, use.folder))


def _swap(use: Use) -> None:
    _run("mkswap", use.device)
    _run("swapon", use.device)
    use.at_end("swapoff", use.device)


def _swap_on_a_loop_over_it(use: Use) -> None:
    upper = use.loop("--offset", HALF, use.device)
    _run("mkswap", upper)
    _run("swapon", upper)
    use.at_end("swapoff", upper)


def _second_device_of_btrfs(use: Use) -> None:
    """The mount shows the first device alone."""
    first = use.folder / "first.img"
    with first.open("wb") as handle:
        handle.truncate(SIZE_BYTES)
    other = use.loop(first)
    _run("mkfs.btrfs", "-q", "-d", "raid1", "-m", "raid1", other, use.device)
    _run("btrfs", "device", "scan", other, use.device)
    use.running(*_mounted(other, use.folder))


def _external_journal(use: Use) -> None:
    """The mount shows the filesystem's own device alone."""
    data = use.folder / "data.img"
    with data.open("wb") as handle:
        handle.truncate(SIZE_BYTES)
    other = use.loop(data)
    _run("mke2fs", "-q", "-b", "4096", "-O", "journal_dev", use.device)
    _run("mkfs.ext4", "-q", "-b", "4096", "-J", f"device={use.device}", other)
    use.running(*_mounted(other, use.folder))


USES: dict[str, tuple[Callable[[Use], None], str]] = {
    "mounted on a loop over it": (_mounted_on_a_loop_over_it, "loop device loop.* sits on loop"),
    "a loop over a loop over it": (_loop_over_a_loop_over_it, "loop device loop.* sits on loop"),
    "a loop over a hard link of its file": (_loop_over_a_hard_link, r"loop device loop.* sits on .*disk\.img"),
    "a loop over a bind mount of its file": (_loop_over_a_bind_mount, r"loop device loop.* sits on .*\.img"),
    "open for reading": (_open_for_reading, "loop.* is open in python"),
    "open by a node of another name": (_open_by_another_node, "loop.* is open in python"),
    "its file open": (_file_open, r"disk\.img is open in python"),
    "mapped by a process": (_mapped, "loop.* is open in python"),
    "locked with flock": (_locked_with_flock, "loop.* is locked by process"),
    "its file locked with fcntl": (_file_locked_with_fcntl, r"disk\.img is locked by process"),
    "opened exclusively": (_opened_exclusively, "opened exclusively"),
    "mounted in another namespace": (_mounted_elsewhere, "is mounted at"),
    "swap": (_swap, "is swap in use"),
    "swap on a loop over it": (_swap_on_a_loop_over_it, "loop device loop.* sits on loop"),
    "second device of btrfs": (_second_device_of_btrfs, "is a device of btrfs"),
    "journal of ext4 on another device": (_external_journal, "opened exclusively"),
}


@pytest.fixture
def use(tmp_path: Path) -> Iterator[Use]:
    file = tmp_path / "disk.img"
    with file.open("wb") as handle:
        handle.truncate(SIZE_BYTES)
    with ExitStack() as ends:
        yield Use(file, ends.enter_context(_loop(file)), ends)


def _digest(file: Path, kind: str) -> str:
    """Of what its user leaves alone: the kernel may swap to the pages behind the first at any time."""
    _run("sync", "--file-system", file)
    with file.open("rb") as handle:
        return hashlib.sha256(handle.read(os.sysconf("SC_PAGE_SIZE") if kind.startswith("swap") else -1)).hexdigest()


@pytest.mark.parametrize("kind", USES)
def test_a_device_in_use_is_refused_with_erase_and_not_written_to(
    host: LocalHost, tmp_path: Path, use: Use, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("pgstrata.stack.safety.PASSING_ATTEMPTS", 1)
    number = use.device.stat().st_rdev
    id_ = f"{use.device}+{SIZE_BYTES}+{os.major(number)}:{os.minor(number)}"
    occupy, why = USES[kind]
    occupy(use)
    before = _digest(use.file, kind)
    stack = Stack(name="under test", data=Volume(device=DiskDevice(ids=(id_,)), fs=Ext4()))
    plan = plan_stack(stack, PlanContext("t1", str(tmp_path), SIZE_BYTES, erase=(id_,)))
    with pytest.raises(PreflightError, match=f"is in use: .*{why}"):
        build(host, plan, Journal.create(host, "t1"))
    assert _digest(use.file, kind) == before


def test_a_file_with_two_loop_devices_names_neither(host: LocalHost, use: Use) -> None:
    use.loop("--offset", HALF, use.file)
    with pytest.raises(PreflightError, match="leads to 2 devices"):
        refuse_or_allow(host, str(use.file), (str(use.file),))
