"""The host probe: one JSON line a second with raw counters of devices, CPU, memory and pressure.

One file, standard library alone (Python 3.9 and later), because it is sent to a Python on the host under test, which
reads it from its standard input: `python3 -I - --devices 7:0,7:1`. It needs no rights. Files stay open and are read
with pread, and nothing is computed here, so that a sample costs a fraction of a millisecond. Ends on SIGINT or SIGTERM
with a last sample.

A line holds `time` (Unix) and `mono` (monotonic) in seconds; `disk`, for each device the fields of
/sys/block/*/stat (kernel: Documentation/block/stat.rst); `cpu`, the first line of /proc/stat in ticks, and `hz`;
`dirty_kb`, `writeback_kb`; `pressure`, for each resource the microseconds of `some` (absent where the kernel has no
PSI); `self_s`, the CPU time this program has used.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import signal
import sys
import time
from typing import Any

RESOURCES = ("cpu", "io", "memory")

_DIRTY = re.compile(rb"^Dirty:\s+(\d+) kB\nWriteback:\s+(\d+) kB", re.MULTILINE)
_SOME = re.compile(rb"^some .*total=(\d+)", re.MULTILINE)


def open_file(path: str) -> int | None:
    """A descriptor, or None where this kernel has no such file."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def read(fd: int | None, size: int = 8192) -> bytes:
    """The content now; empty when there is no file or its device went away."""
    if fd is None:
        return b""
    try:
        return os.pread(fd, size, 0)
    except OSError:
        return b""


class Sampler:
    """Keeps the files open; `sample` reads them once."""

    def __init__(self, devices: list[str]) -> None:
        self.disks = {d: open_file(f"/sys/dev/block/{d}/stat") for d in devices}
        self.stat = open_file("/proc/stat")
        self.meminfo = open_file("/proc/meminfo")
        self.pressure = {r: open_file("/proc/pressure/" + r) for r in RESOURCES}
        self.hz = os.sysconf("SC_CLK_TCK")

    def sample(self) -> dict[str, Any]:
        line: dict[str, Any] = {"time": round(time.time(), 6), "mono": round(time.monotonic(), 6)}
        disk = {}
        for device, fd in self.disks.items():
            text = read(fd)
            if text:
                disk[device] = [int(field) for field in text.split()]
        line["disk"] = disk
        line["cpu"] = [int(field) for field in read(self.stat, 512).split(b"\n", 1)[0].split()[1:]]
        line["hz"] = self.hz
        match = _DIRTY.search(read(self.meminfo))
        if match:
            line["dirty_kb"], line["writeback_kb"] = int(match.group(1)), int(match.group(2))
        line["pressure"] = self._pressure()
        line["self_s"] = round(time.process_time(), 6)
        return line

    def _pressure(self) -> dict[str, int]:
        found = {}
        for resource, fd in self.pressure.items():
            match = _SOME.search(read(fd))
            if match:
                found[resource] = int(match.group(1))
        return found


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="one JSON line of raw counters a second")
    parser.add_argument("--devices", default="", help="major:minor, separated by commas")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between samples")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    arguments = parse_arguments(argv)
    ended: list[bool] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.append(True))
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end)  # so that a signal just before select is not slept through

    sampler = Sampler([d for d in arguments.devices.split(",") if d])
    due = time.monotonic()
    while True:
        sys.stdout.write(json.dumps(sampler.sample(), separators=(",", ":")) + "\n")
        sys.stdout.flush()
        if ended:
            return 0
        now = time.monotonic()
        # Late samples are left out rather than taken in a burst.
        due += arguments.interval * max(1, int((now - due) / arguments.interval) + 1)
        select.select([read_end], [], [], max(0.0, due - now))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
