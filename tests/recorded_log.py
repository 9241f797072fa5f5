"""A small event log of real disks, and the jobs of workers that look at its states."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pgstrata.crash import state_worker

DISK = Path(sys.executable).parent / "strata-disk"
Stage = dict[str, Any]
STAGE: Stage = {"up": [], "mend": [], "examine": [], "down": [], "frees": [], "binds": None, "mount_point": None}


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
        loop = state_worker.attach(str(daemon / "disks" / "data-0"), 512)
        try:
            run("mkfs.ext4", "-q", loop.node)
            run("mount", loop.node, mount_point)
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
            state_worker.detach(loop)
    return log


def states_of(log: Path, count: int) -> list[str]:
    options = ("--states", str(count), "--seed", "3", "--after", "begin", "--until", "end")
    return run(DISK, "states", log, *options).splitlines()


def job_of(log: Path, mount_point: Path, states: Sequence[str], stages: Sequence[Stage], first: str = "") -> Stage:
    """Tells the files of each state; `first` is run before."""
    return {
        "daemon": "",
        "log": str(log),
        "disks": [{"of": "data-0", "node": "data.0"}],
        "stages": list(stages),
        "in_sight": False,
        "examined": [],
        "examiner": None,
        "places": None,
        "marks": ["begin", "end"],
        "server": {
            "user": "root",
            "argv": ["/bin/sh", "-c", f"{first} cat {mount_point}/file* | md5sum; ls {mount_point}"],
            "data": "/nowhere",
            "remove": ["/nothing"],
            "stdin": "",
            "until": "",
            "timeout_s": 60,
        },
        "seconds": None,
        "states": [json.loads(state) for state in states],
    }
