"""Workers on a real log: how many there are changes nothing about what is seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from pgstrata.crash import state_worker
from pgstrata.crash.job import Seen, parse_seen, shares
from recorded_log import DISK, STAGE, Stage, job_of, record, serving, states_of

pytestmark = pytest.mark.skipif(not DISK.exists(), reason="strata-disk is not built: cargo is missing")


def look(
    folder: Path,
    log: Path,
    mount_point: Path,
    states: list[str],
    workers: int,
    volume: Stage | None = None,
    below: list[Stage] | None = None,
    in_sight: bool = False,
) -> dict[str, Seen]:
    """What was seen in each state, by its digest: its files."""
    found: dict[str, Seen] = {}
    mount = {"up": [["mount", "<data.0>", str(mount_point)]]}
    for worker, portion in enumerate(shares(states, workers)):
        with serving(folder / f"states{workers}.{worker}") as daemon:
            stages = [*(below or []), {**STAGE, **(volume or mount), "mount_point": str(mount_point)}]
            job = {**job_of(log, mount_point, portion, stages), "daemon": str(daemon), "in_sight": in_sight}
            (folder / "job").write_text(json.dumps(job))
            argv = [sys.executable, "-I", state_worker.__file__, str(folder / "job")]
            seen = parse_seen(subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False).stdout)
        found |= {json.loads(state)["digest"]: one for state, one in zip(portion, seen, strict=True)}
    return found


def files(seen: Mapping[str, Seen]) -> dict[str, str]:
    assert {(one.problem, one.server) for one in seen.values()} == {("", 0)}
    assert {(one.mounted, one.mended) for one in seen.values()} == {(0, "")}
    return {digest: one.stdout for digest, one in seen.items()}


def test_one_worker_and_two_see_the_same_in_the_same_states(tmp_path: Path) -> None:
    mount_point = tmp_path / "mounted"
    mount_point.mkdir()
    tmp_path.chmod(0o755)
    log = record(tmp_path, mount_point)
    states = states_of(log, 12)
    one = files(look(tmp_path, log, mount_point, states, 1))
    assert one == files(look(tmp_path, log, mount_point, states, 2))
    assert len(one) == len(states) == 12
    assert len(set(one.values())) > 3
    assert not list(mount_point.iterdir())
    mends_first(tmp_path, log, mount_point, states[-1:], one)
    stands_on_a_layer(tmp_path, log, mount_point, states[-1:], one)


def mends_first(folder: Path, log: Path, mount_point: Path, states: list[str], sound: Mapping[str, str]) -> None:
    """A volume that cannot be mounted is mended, mounted and looked at, and both are told."""
    mended = folder / "mended"
    mount = f"test -e {mended} || {{ echo broken >&2; exit 32; }}; exec mount <data.0> {mount_point}"
    volume = {"up": [["sh", "-c", mount]], "mend": [["touch", str(mended)]]}
    ((digest, seen),) = look(folder, log, mount_point, states, 1, volume).items()
    assert (seen.problem, seen.server) == ("", 0)
    assert (seen.mounted, seen.mount_error, seen.mended) == (32, "broken", f"touch {mended}")
    assert seen.stdout == sound[digest]


def stands_on_a_layer(folder: Path, log: Path, mount_point: Path, states: list[str], sound: Mapping[str, str]) -> None:
    """What a stage binds is what those above stand on, and it is taken down after them. A loop device over the disk
    stands for a volume group or an array."""
    layer = STAGE | {
        "up": [["losetup", "--find", "--show", "<data.0>"]],
        "down": [
            ["losetup", "--detach", "<data.layer>"],
            ["sh", "-c", f"readlink /proc/self/ns/mnt /proc/self/ns/ipc > {folder}/spaces"],
        ],
        "binds": "data.layer",
    }
    mount = {"up": [["mount", "<data.layer>", str(mount_point)]]}
    for in_sight in (False, True):
        seen = look(folder, log, mount_point, states, 1, mount, below=[layer], in_sight=in_sight)
        assert files(seen) == {digest: sound[digest] for digest in seen}
        assert not list(mount_point.iterdir())
        mounts, semaphores = (folder / "spaces").read_text().split()
        assert (mounts == os.readlink("/proc/self/ns/mnt")) == in_sight
        assert semaphores == os.readlink("/proc/self/ns/ipc"), "lvm and udev must see the same ones"
    ((_, one),) = look(folder, log, mount_point, states, 1, below=[STAGE | {"up": [["sh", "-c", "exit 5"]]}]).items()
    assert (one.mounted, one.mount_error, one.server) == (5, "sh ended with 5", None)
    ((_, one),) = look(folder, log, mount_point, states, 1, below=[STAGE | {"up": [["no-such-tool"]]}]).items()
    assert one.problem == "no-such-tool ended with 127"
