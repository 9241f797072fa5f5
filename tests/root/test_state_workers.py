"""Workers on a real log: how many there are changes nothing about what is seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pgstrata.crash import state_worker
from pgstrata.crash.job import Seen, parse_seen, shares

DISK = Path(sys.executable).parent / "strata-disk"
Volume = dict[str, list[list[str]]]
"""How one is mounted, and mended where it cannot be."""
pytestmark = pytest.mark.skipif(not DISK.exists(), reason="strata-disk is not built: cargo is missing")


def run(*argv: str | Path, stdin: str = "") -> str:
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, input=stdin).stdout


@contextmanager
def serving(folder: Path, *options: str | Path) -> Iterator[Path]:
    run(DISK, "serve", folder, "--background", *options)
    try:
        yield folder
    finally:
        run(DISK, "stop", folder)


def record(folder: Path, mount_point: Path) -> Path:
    """The log of an ext4 to which files are written, each of them synced and marked."""
    log = folder / "log"
    with serving(folder / "recorded", "--log", log) as daemon:
        run(DISK, "add", daemon, "data-0", "--size", str(32 << 20))
        node = state_worker.attach(str(daemon / "disks" / "data-0"))
        try:
            run("mkfs.ext4", "-q", node)
            run("mount", node, mount_point)
            try:
                run("sync", "--file-system", mount_point)
                run(DISK, "ask", daemon, '{"op": "mark", "text": "begin"}')
                for number in range(12):
                    with (mount_point / f"file{number}").open("w") as file:
                        file.write(f"{number} " * 3000)
                        file.flush()
                        os.fsync(file.fileno())
                    run(DISK, "ask", daemon, f'{{"op": "mark", "text": "ack 0 {number}"}}')
                run(DISK, "ask", daemon, '{"op": "mark", "text": "end"}')
            finally:
                run("umount", mount_point)
        finally:
            state_worker.detach(node)
    return log


def look(
    folder: Path, log: Path, mount_point: Path, states: list[str], workers: int, volume: Volume | None = None
) -> dict[str, Seen]:
    """What was seen in each state, by its digest: its files."""
    found: dict[str, Seen] = {}
    mount = {"commands": [["mount", "<data.0>", str(mount_point)]], "mend": []}
    for worker, portion in enumerate(shares(states, workers)):
        with serving(folder / f"states{workers}.{worker}") as daemon:
            argv = ["/bin/sh", "-c", f"cat {mount_point}/file* | md5sum; ls {mount_point}"]
            server = {
                "user": "root",
                "argv": argv,
                "data": "/nowhere",
                "remove": ["/nothing"],
                "stdin": "",
                "until": "",
                "timeout_s": 60,
            }
            job: dict[str, Any] = {
                "daemon": str(daemon),
                "log": str(log),
                "disks": [{"of": "data-0", "node": "data.0"}],
                "mounts": [{**(volume or mount), "mount_point": str(mount_point)}],
                "marks": ["begin", "end"],
                "forget": [],
                "server": server,
                "seconds": None,
                "states": [json.loads(state) for state in portion],
            }
            (folder / "job").write_text(json.dumps(job))
            seen = parse_seen(run(sys.executable, "-I", state_worker.__file__, folder / "job"))
        assert [(one.problem, one.server) for one in seen] == [("", 0)] * len(portion)
        found |= {json.loads(state)["digest"]: one for state, one in zip(portion, seen, strict=True)}
    return found


def files(seen: Mapping[str, Seen]) -> dict[str, str]:
    assert {(one.mounted, one.mended) for one in seen.values()} == {(0, "")}
    return {digest: one.stdout for digest, one in seen.items()}


def test_one_worker_and_two_see_the_same_in_the_same_states(tmp_path: Path) -> None:
    mount_point = tmp_path / "mounted"
    mount_point.mkdir()
    tmp_path.chmod(0o755)
    log = record(tmp_path, mount_point)
    options = ("--states", "12", "--seed", "3", "--after", "begin", "--until", "end")
    states = run(DISK, "states", log, *options).splitlines()
    one = files(look(tmp_path, log, mount_point, states, 1))
    assert one == files(look(tmp_path, log, mount_point, states, 2))
    assert len(one) == len(states) == 12
    assert len(set(one.values())) > 3
    assert not list(mount_point.iterdir())
    mends_first(tmp_path, log, mount_point, states[-1:], one)


def mends_first(folder: Path, log: Path, mount_point: Path, states: list[str], sound: Mapping[str, str]) -> None:
    """A volume that cannot be mounted is mended, mounted and looked at, and both are told."""
    mended = folder / "mended"
    mount = f"test -e {mended} || {{ echo broken >&2; exit 32; }}; exec mount <data.0> {mount_point}"
    volume = {"commands": [["sh", "-c", mount]], "mend": [["touch", str(mended)]]}
    ((digest, seen),) = look(folder, log, mount_point, states, 1, volume).items()
    assert (seen.mounted, seen.mount_error, seen.mended) == (32, "broken", f"touch {mended}")
    assert seen.stdout == sound[digest]
