"""Root that a container withholds something from: `plan` and `doctor` say what, before anything is built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from campaigning import environment, reachable

pytestmark = pytest.mark.root

WITHOUT_MOUNTS = ("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-all")


def hidden(node: str) -> tuple[str, ...]:
    """Runs a program where this node is /dev/null."""
    return ("unshare", "--mount", "sh", "-c", f'mount --bind /dev/null {node} && exec "$@"', "sh")


def said(place: Path, *words: str) -> tuple[int, str]:
    env = {**os.environ, **environment(place)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("around", "stack", "why", "hint"),
    [
        (WITHOUT_MOUNTS, "ext4", "root has no CAP_SYS_ADMIN here", "--cap-add SYS_ADMIN"),
        (hidden("/dev/loop-control"), "ext4", "/dev/loop-control is not the kernel's device", "--device"),
        (hidden("/dev/fuse"), "media(nvme)/ext4", "/dev/fuse is not the kernel's device", "--device"),
    ],
    ids=["mounts", "loop", "fuse"],
)
def test_what_is_withheld_is_said_beforehand(
    tmp_path: Path, around: tuple[str, ...], stack: str, why: str, hint: str
) -> None:
    program = (sys.executable, "-m", "pgstrata.cli.main")
    with reachable(tmp_path) as place:
        out = ("--out", str(place / "out"), "--scratch", str(place))
        code, text = said(place, *around, *program, "quick", stack, "--plan", *out)
        assert (code, why in text, hint in text) == (3, True, True), text
        _, text = said(place, *around, *program, "doctor", "--scratch", str(place), "--json")
        assert why in text, text
