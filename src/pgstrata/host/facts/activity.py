"""Other activity on the host: load average, pressure, the busiest processes, PostgreSQL servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgstrata.host.facts.system import read_file, read_output
from pgstrata.host.protocol import Busy, Host
from pgstrata.spec.printable import summarise_names

SAMPLE_S = 1.0
CPU_NOTICED = 0.05
"""Share of one processor above which a process counts as busy."""
IO_NOTICED_BYTES_PER_S = 1_000_000
MOST_NAMED = 5
"""Largest number of busy processes, and of servers."""

PRESSED = ("cpu", "io", "memory")
"""Resources whose pressure (PSI) the kernel tells, since Linux 4.20."""

DEFUNCT = " <defunct>"
"""End of ps's line of a process that has ended."""

_SERVER_NAMES = frozenset({"postgres", "postmaster"})


@dataclass(frozen=True)
class Server:
    """A running PostgreSQL server."""

    pid: int
    user: str
    command: str


def parse_load(text: str) -> float:
    """The one-minute average from /proc/loadavg."""
    return float(text.split()[0])


def read_load(host: Host) -> float | None:
    text = read_file(host, "/proc/loadavg")
    return parse_load(text) if text else None


def parse_pressure(text: str) -> dict[str, dict[str, float]]:
    """By kind (`some`, `full`): avg10, avg60, avg300 in percent, total in microseconds."""
    return {
        words[0]: {key: float(value) for key, _, value in (word.partition("=") for word in words[1:])}
        for words in (line.split() for line in text.splitlines())
        if words
    }


def read_pressure(host: Host) -> dict[str, float]:
    """Percent of the last ten seconds in which something waited for cpu, io, memory; empty without PSI."""
    found = {name: read_file(host, f"/proc/pressure/{name}") for name in PRESSED}
    return {name: parse_pressure(text)["some"]["avg10"] for name, text in found.items() if text}


def read_busy(host: Host, seconds: float = SAMPLE_S) -> tuple[Busy, ...]:
    """Processes that are not ours and use a noticeable part of a processor or of the disks, the busiest first."""
    return tuple(
        busy
        for busy in host.busiest(seconds)
        if busy.cpu_share >= CPU_NOTICED or busy.io_bytes_per_s >= IO_NOTICED_BYTES_PER_S
    )


def render_busy(found: Sequence[Busy]) -> str:
    """The busiest by name, the others by their number."""
    return summarise_names([busy.text for busy in found], MOST_NAMED)


def render_servers(found: Sequence[Server]) -> str:
    """The first by their command lines, the others by their number."""
    return summarise_names([server.command for server in found], MOST_NAMED)


def parse_servers(text: str) -> tuple[Server, ...]:
    """From `ps -e -o pid=,ppid=,user:32=,comm:16=,args=`: PostgreSQL processes that no other one started.

    One that has ended and whose parent has not asked yet is none.
    """
    rows = [line.split(None, 4) for line in text.splitlines() if line.strip() and not line.endswith(DEFUNCT)]
    ours = {row[0] for row in rows if row[3] in _SERVER_NAMES}
    return tuple(
        Server(int(row[0]), row[2], row[4] if len(row) > 4 else row[3])
        for row in rows
        if row[3] in _SERVER_NAMES and row[1] not in ours
    )


def read_servers(host: Host) -> tuple[Server, ...]:
    """Running PostgreSQL servers; none known where there is no ps (procps)."""
    text = read_output(host, "ps", "-e", "-o", "pid=,ppid=,user:32=,comm:16=,args=")
    return parse_servers(text) if text else ()
