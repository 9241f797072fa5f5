"""Root that a container withholds something from: `plan` and `doctor` say what, before anything is built."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from apart import apart
from campaigning import environment, reachable
from denied import denied

pytestmark = pytest.mark.root

WITHOUT_MOUNTS = ("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-all")


def within(script: str) -> list[str]:
    """Runs a program after a script in a mount namespace of its own."""
    return apart("sh", "-ec", f'{script}; exec "$@"', "sh")


def hidden(node: str) -> list[str]:
    """Runs a program where this node is /dev/null."""
    return within(f"mount --bind /dev/null {node}")


def read_only(folder: str) -> list[str]:
    return within(f"mount --bind {folder} {folder}; mount -o remount,bind,ro {folder}")


WITHOUT_LOOPS = within(
    "mount -t tmpfs none /mnt; (cd /dev; cp -a null zero full random urandom tty fuse loop-control /mnt);"
    " ln -s /proc/self/fd /mnt/fd; mkdir /mnt/shm; mount --move /mnt /dev"
)
"""Runs a program with the devices that a container is given by name."""
WITHOUT_NETWORKS = (
    "unshare", "--user", "--map-root-user", "sh", "-c",
    'echo 0 > /proc/sys/user/max_net_namespaces; exec "$@"', "sh",
)  # fmt: skip


def said(place: Path, *words: str) -> tuple[int, str]:
    env = {**os.environ, **environment(place)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


READ_ONLY = "Read-only file system"


@pytest.mark.parametrize(
    ("around", "stack", "why", "hint"),
    [
        (WITHOUT_MOUNTS, "ext4", "root has no CAP_SYS_ADMIN here", "--cap-add SYS_ADMIN"),
        (hidden("/dev/loop-control"), "ext4", "/dev/loop-control is not the kernel's device", "--device"),
        (hidden("/dev/fuse"), "media(nvme)/ext4", "/dev/fuse is not the kernel's device", "--device"),
        (denied(), "ext4", "a seccomp filter or a security module denies mount(2) to root", "seccomp=unconfined"),
        (WITHOUT_LOOPS, "ext4", ": No such file or directory", "--device /dev/loopN"),
        (read_only("/sys"), "ext4@queue.read_ahead_kb=64", f"/queue/read_ahead_kb: {READ_ONLY}", "--privileged"),
        (read_only("/proc/sys"), "tmpfs@vm.swappiness=1", f"/proc/sys/vm/swappiness: {READ_ONLY}", "--privileged"),
        (WITHOUT_NETWORKS, "cluster(2)/tmpfs", "no network namespace can be made", "user.max_net_namespaces"),
    ],
    ids=["mounts", "loop-control", "fuse", "seccomp", "loop", "sys", "proc", "networks"],
)
def test_what_is_withheld_is_said_beforehand(
    blank_disk: tuple[str, str], tmp_path: Path, around: Sequence[str], stack: str, why: str, hint: str
) -> None:
    program = (sys.executable, "-m", "pgstrata.cli.main")
    with reachable(tmp_path) as place:
        out = ("--out", str(place / "out"), "--scratch", str(place))
        for further in (["--plan"], []):
            code, text = said(place, *around, *program, "quick", stack, *further, *out)
            assert (code, why in text, hint in text) == (3, True, True), text
        assert not list((place / "out").glob("trials/*"))
        _, text = said(place, *around, *program, "doctor", "--scratch", str(place), "--json")
        assert why.replace("swappiness", "drop_caches") in text, text
        assert blank_disk[1] in text, "a blank disk that cannot be read, or has no node here, is listed all the same"
