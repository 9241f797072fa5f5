"""By how much does the event log of a recorded disk slow pgbench down? As root, on an idle machine.

    python benches/bench_recording.py [--pairs 5] [--seconds 5]

Two disks in memory with an ext4 and a server each, one of them with an event log; pgbench's own script with 8 clients
on one and the other in turn. Prints the transactions a second of each pair and the median slowdown. Bound: 25 %.
"""

from __future__ import annotations

import argparse
import os
import pwd
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAM = Path(sys.executable).with_name("strata-disk")
USER = "postgres"
SIZE_BYTES = 1 << 30
CLIENTS = 8
SCALE = 5
BOUND_PERCENT = 25.0
PATIENCE_S = 60.0


def run(*argv: object, user: str | None = None) -> str:
    words = [str(word) for word in argv]
    done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=300, user=user, cwd="/")
    return done.stdout


def programs() -> Path:
    """The folder with the server of the newest major."""
    found = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    return max((path.parent for path in found), key=lambda path: float(path.parent.name))


@dataclass(frozen=True)
class Served:
    """A server on a disk of strata-disk."""

    programs: Path
    socket: Path

    def pgbench(self, *options: object) -> str:
        return run(self.programs / "pgbench", "--host", self.socket, *options, "postgres", user=USER)

    def tps(self, seconds: int) -> float:
        told = self.pgbench("--client", CLIENTS, "--jobs", 2, "--time", seconds, "--no-vacuum")
        found = re.search(r"tps = ([\d.]+) \(without", told)
        assert found, told
        return float(found[1])


def unmount(mounted: Path) -> None:
    """A server that has said that it is down may still be about to leave."""
    until_s = time.monotonic() + PATIENCE_S
    while subprocess.run(["umount", mounted], capture_output=True, timeout=300).returncode != 0:
        if time.monotonic() > until_s:
            raise TimeoutError(f"{mounted} stays mounted")
        time.sleep(0.1)


@contextmanager
def disk(folder: Path, *options: object) -> Iterator[Path]:
    """An ext4 on a disk in memory, mounted."""
    run(PROGRAM, "serve", folder, "--background", *options)
    with ExitStack() as back:
        back.callback(run, PROGRAM, "stop", folder)
        run(PROGRAM, "add", folder, "disk", "--size", SIZE_BYTES)
        node = run("losetup", "--find", "--show", "--direct-io=on", folder / "disks" / "disk").strip()
        back.callback(run, "losetup", "--detach", node)
        run("mkfs.ext4", "-q", node)
        mounted = folder.with_suffix(".mounted")
        mounted.mkdir()
        run("mount", node, mounted)
        back.callback(unmount, mounted)
        shutil.chown(mounted, USER)
        yield mounted


@contextmanager
def server(mounted: Path) -> Iterator[Served]:
    served = Served(programs(), mounted)
    data = mounted / "data"
    run(served.programs / "initdb", "--pgdata", data, "--auth", "trust", "--no-sync", user=USER)
    options = f"-c listen_addresses= -c unix_socket_directories={mounted} -c shared_buffers=64MB -c max_wal_size=4GB"
    control = (served.programs / "pg_ctl", "--pgdata", data, "--wait")
    run(*control, "start", "--log", data / "log", "--options", options, user=USER)
    try:
        served.pgbench("--initialize", "--quiet", "--scale", SCALE)
        yield served
    finally:
        run(*control, "stop", "--mode", "immediate", user=USER)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5)
    asked = parser.parse_args()
    pwd.getpwnam(USER)
    slower = []
    with tempfile.TemporaryDirectory(prefix="bench-recording-", dir="/var/tmp") as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        plain = stack.enter_context(server(stack.enter_context(disk(folder / "plain"))))
        logged = stack.enter_context(server(stack.enter_context(disk(folder / "logged", "--log", folder / "log"))))
        for _ in range(asked.pairs):
            without, with_log = plain.tps(asked.seconds), logged.tps(asked.seconds)
            slower.append(100 * (1 - with_log / without))
            print(f"{without:8.0f} transactions a second without the log, {with_log:8.0f} with it", flush=True)
    slowdown = statistics.median(slower)
    print(
        f"recording slows by {slowdown:.1f} % (median of {len(slower)} pairs, {min(slower):.1f} to {max(slower):.1f})"
    )
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    if slowdown > BOUND_PERCENT:
        print(f"above the bound of {BOUND_PERCENT:.0f} %")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
