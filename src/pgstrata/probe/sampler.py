"""The host probe: one JSON line a second with raw counters of devices, CPU, memory and pressure.

One file, standard library alone (Python 3.9 and later), because it is sent to a Python on the host under test, which
reads it from its standard input: `python3 -I - --devices 7:0,7:1`. It needs no rights. Files stay open and are read
with pread, and nothing is computed here but the sums over the tasks of a program, so that a sample costs a fraction of
a millisecond. Ends on SIGINT or SIGTERM
with a last sample.

A line holds `time` (Unix) and `mono` (monotonic) in seconds; `disk`, for each device the fields of
/sys/block/*/stat (kernel: Documentation/block/stat.rst); `cpu`, the first line of /proc/stat in ticks, and `hz`;
`dirty_kb`, `writeback_kb`; `pressure`, for each resource the microseconds of `some` (absent where the kernel has no
PSI); `self_s`, the CPU time this program has used. `server` and `client`, each once its process was found: the seconds
that its tasks have been on a processor (`cpu_s`) and have waited for one (`wait_s`), and how many there are (`tasks`).
The server is the `postgres` with the data directory among its arguments, with the processes that it started; the client
the `pgbench` with the server's socket directory among its own. What a process used after its last sample is lost.
`nodes`, of a cluster, has the same of each of its servers by name, with `received_bytes` and `sent_bytes`: what went by
the link of its network namespace so far (/proc/PID/net/dev, all interfaces but the loopback).
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


def read_path(path: str) -> bytes:
    """The content of a file that may go away at any moment; empty when it has."""
    fd = open_file(path)
    try:
        return read(fd, 65536)
    finally:
        if fd is not None:
            os.close(fd)


def find_process(name: str, argument: str) -> int | None:
    """The process of that name with that argument; None while there is not exactly one."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if read_path(f"/proc/{pid}/comm").strip() != name.encode():
            continue
        if argument.encode() in read_path(f"/proc/{pid}/cmdline").split(b"\0")[1:]:
            found.append(int(pid))
    return found[0] if len(found) == 1 else None


class Program:
    """A program under test: its process is looked for until it is there, and its tasks are summed up."""

    def __init__(self, name: str, argument: str) -> None:
        self.name, self.argument = name, argument
        self.pid: int | None = None
        self.seen: dict[str, tuple[int, int]] = {}
        self.cpu_ns = self.wait_ns = 0

    def sample(self) -> dict[str, Any] | None:
        """None until there is a process; its sums stay when it ends."""
        if self.pid is None:
            self.pid = find_process(self.name, self.argument) if self.argument else None
        if self.pid is None:
            return None
        now = {}
        for task in self.tasks(self.pid):
            # run time, run delay, time slices (kernel: Documentation/scheduler/sched-stats.rst)
            fields = read_path(f"/proc/{task}/schedstat").split()
            if len(fields) == 3:
                now[task] = (int(fields[0]), int(fields[1]))
        for task, (cpu_ns, wait_ns) in now.items():
            before = self.seen.get(task, (0, 0))
            self.cpu_ns += max(0, cpu_ns - before[0])
            self.wait_ns += max(0, wait_ns - before[1])
        self.seen = now
        return {"cpu_s": round(self.cpu_ns / 1e9, 6), "wait_s": round(self.wait_ns / 1e9, 6), "tasks": len(now)}

    def network(self) -> dict[str, int]:
        """Bytes by all links of the process's network but the loopback; nothing where it is not there."""
        lines = [line.partition(b":") for line in read_path(f"/proc/{self.pid}/net/dev").splitlines()[2:]]
        links = [fields.split() for name, _, fields in lines if name.strip() != b"lo"]
        if not links:
            return {}
        received, sent = (sum(int(link[field]) for link in links) for field in (0, 8))
        return {"received_bytes": received, "sent_bytes": sent}

    def tasks(self, pid: int) -> list[str]:
        """The threads, as paths below /proc."""
        try:
            return [f"{pid}/task/{thread}" for thread in os.listdir(f"/proc/{pid}/task")]
        except OSError:
            return []


class Server(Program):
    """PostgreSQL: each session is a process that the first one started."""

    def tasks(self, pid: int) -> list[str]:
        children = read_path(f"/proc/{pid}/task/{pid}/children").decode().split()
        return [str(pid), *children]


class Sampler:
    """Keeps the files open; `sample` reads them once."""

    def __init__(
        self, devices: list[str], server: str = "", client: str = "", nodes: dict[str, str] | None = None
    ) -> None:
        self.programs = {"server": Server("postgres", server), "client": Program("pgbench", client)}
        self.nodes = {name: Server("postgres", directory) for name, directory in (nodes or {}).items()}
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
        for name, program in self.programs.items():
            sums = program.sample()
            if sums is not None:
                line[name] = sums
        if self.nodes:
            line["nodes"] = self._nodes()
        line["self_s"] = round(time.process_time(), 6)
        return line

    def _nodes(self) -> dict[str, dict[str, Any]]:
        found = {name: (server, server.sample()) for name, server in self.nodes.items()}
        return {name: {**sums, **server.network()} for name, (server, sums) in found.items() if sums is not None}

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
    parser.add_argument("--server", default="", help="data directory of the server")
    parser.add_argument("--client", default="", help="socket directory that pgbench connects to")
    parser.add_argument("--node", action="append", default=[], help="NAME=DATA-DIRECTORY of a server of a cluster")
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

    devices = [d for d in arguments.devices.split(",") if d]
    nodes = {name: directory for name, _, directory in (node.partition("=") for node in arguments.node)}
    sampler = Sampler(devices, arguments.server, arguments.client, nodes)
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
