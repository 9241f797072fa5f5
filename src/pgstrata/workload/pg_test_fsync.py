"""pg_test_fsync: how many times a second the device makes an 8 kB write durable, by each method."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pgstrata.errors import PgstrataError, parser_of
from pgstrata.host.protocol import Command

_SECTIONS = {
    "one": re.compile(r"^Compare file sync methods using one (\d+)kB write:$"),
    "two": re.compile(r"^Compare file sync methods using two (\d+)kB writes:$"),
    "sizes": re.compile(r"^Compare open_sync with different write sizes:$"),
    "other": re.compile(r"^Test if fsync on non-write file descriptor is honored:$"),
    "unsynced": re.compile(r"^Non-sync'ed (\d+)kB writes:$"),
}
_RATE = re.compile(r"^\s+(?P<method>\S.*?)\s+(?P<rate>[\d.]+) ops/sec\s+(?P<us>\d+) usecs/op$")
_MISSING = re.compile(r"^\s+(?P<method>\S+)\s+n/a\*?$")
_KNOWN = re.compile(
    r"^(?:\d+ seconds? per test|O_DIRECT supported on this platform for .*\.|Direct I/O is not supported .*\.|"
    r"\(in \"?wal_sync_method\"? preference order, except fdatasync is Linux's default\)|"
    r"\(This is designed to compare the cost of writing 16kB in different write|open_sync sizes\.\)|"
    r"\(If the times are similar, fsync\(\) can sync data written on a different|descriptor\.\)|"
    r"\* This file system and its mount options do not support direct|  ?I/O, e\.g\. ext4 in journaled mode\.)$"
)


@dataclass(frozen=True)
class SyncRates:
    """Operations a second by method; None where the platform lacks it."""

    one_write: dict[str, float | None]
    two_writes: dict[str, float | None]
    unsynced_writes: float | None

    @property
    def fdatasync(self) -> float | None:
        """The default wal_sync_method on Linux, one 8 kB write."""
        return self.one_write.get("fdatasync")


def plan_pg_test_fsync(program: str, path: str, *, seconds_per_test: int = 1) -> Command:
    """Runs on a file that it makes and removes; about 15 tests of `seconds_per_test`."""
    argv = (program, f"--secs-per-test={seconds_per_test}", f"--filename={path}")
    return Command(argv, timeout_s=60.0 + 30 * seconds_per_test, cwd="/")


@parser_of("pg_test_fsync")
def parse_pg_test_fsync(text: str) -> SyncRates:
    """Rates of the sync methods; PgstrataError for a line that is not understood or a missing section."""
    found: dict[str, dict[str, float | None]] = {}
    section = ""
    for line in text.splitlines():
        title = next((name for name, pattern in _SECTIONS.items() if pattern.match(line)), None)
        if title:
            section = title
            found[section] = {}
            continue
        rate, missing = _RATE.match(line), _MISSING.match(line)
        if rate and section:
            found[section][rate["method"]] = float(rate["rate"])
        elif missing and section:
            found[section][missing["method"]] = None
        elif line.strip() and not _KNOWN.match(line):
            raise PgstrataError(f"line of pg_test_fsync is not understood: {line!r}")
    if "one" not in found or "two" not in found:
        raise PgstrataError(f"pg_test_fsync gave no rates: {text[:200]!r}")
    return SyncRates(found["one"], found["two"], next(iter(found.get("unsynced", {}).values()), None))
