"""The baseline of a medium: how often it flushes, how fast it reads and writes, before PostgreSQL comes into it.

Writes into one folder that the caller made and removes; of a device without one only what can be read is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pgstrata.errors import PgstrataError
from pgstrata.host.protocol import Command, Host, HostLost
from pgstrata.workload.fio import FioResult, Pattern, parse_fio, plan_fio
from pgstrata.workload.pg_test_fsync import parse_pg_test_fsync, plan_pg_test_fsync

BLOCK_BYTES = 8192
STREAM_BYTES = 1 << 20
DEPTH = 32
SMALLEST_BYTES, LARGEST_BYTES = 16 << 20, 256 << 20
BYTES_PER_S = 128 << 20
"""The file is as large as a good medium writes in the time that one rate is measured for, within these bounds."""
SHORTEST_FSYNC_S = 1.0
"""pg_test_fsync counts in whole seconds, 18 of them: shorter baselines ask fio."""
NO_FIO = "random and sequential rates: fio is not installed"
NOTHING_WRITTEN = "flushes and writes: nothing is written to a device; name a folder of a filesystem on it"
NO_FLUSHES_BY_FIO = "flushes: fio is not installed"
NO_FLUSHES = "flushes: neither fio nor pg_test_fsync is installed"


@dataclass(frozen=True)
class MediumBaseline:
    """Rates of a medium; None for what could not be measured, and `missing` says why."""

    flushes_per_s: float | None = None
    """8 KiB writes made durable one after another (fdatasync)."""
    flushes_by: str = ""
    """`pg_test_fsync` or `fio`: only rates by the same one compare."""
    random_reads_per_s: float | None = None
    random_writes_per_s: float | None = None
    """8 KiB, 32 at once, past the page cache."""
    sequential_read_bytes_per_s: float | None = None
    sequential_write_bytes_per_s: float | None = None
    missing: tuple[str, ...] = ()

    def lacking(self, why: str) -> MediumBaseline:
        """The same, with one more reason."""
        return replace(self, missing=(*self.missing, why))


def measure_medium(host: Host, folder: str, server_binaries: str | None, *, seconds: float = 2.0) -> MediumBaseline:
    """The baseline of what a folder lies on, in files in it; each rate is measured for `seconds`.

    `server_binaries` is the folder of a server's programs, which may hold pg_test_fsync. What fails is named in
    `missing` and nothing else: a baseline is worth no campaign.
    """
    size_bytes = int(min(LARGEST_BYTES, max(SMALLEST_BYTES, seconds * BYTES_PER_S)))
    if host.space(folder).free_bytes < 4 * size_bytes:
        return MediumBaseline(missing=(f"all rates: {folder} has no room for a file of {size_bytes >> 20} MiB",))
    fsync = f"{server_binaries}/pg_test_fsync"
    has_fsync = server_binaries is not None and host.status(fsync) is not None
    has_fio = _has_fio(host)
    found = MediumBaseline()
    with _removed(host, f"{folder}/flushed") as path:
        if has_fsync and (seconds >= SHORTEST_FSYNC_S or not has_fio):
            found = _taken(found, "flushes", _FsyncTest(host, fsync, path, seconds).flushes)
        elif has_fio:
            found = _taken(found, "flushes", _Fio(host, path, SMALLEST_BYTES, seconds).flushes)
        else:
            found = found.lacking(NO_FLUSHES)
    if not has_fio:
        return found.lacking(NO_FIO)
    with _removed(host, f"{folder}/rates") as path:
        fio = _Fio(host, path, size_bytes, seconds)
        found = _taken(found, "sequential writes", fio.sequential_writes)  # first, since it lays the file out
        found = _taken(found, "sequential reads", fio.sequential_reads)
        found = _taken(found, "random reads", fio.random_reads)
        return _taken(found, "random writes", fio.random_writes)


def measure_flushes(host: Host, folder: str, *, seconds: float) -> MediumBaseline:
    """The flushes alone, by fio; 16 MiB are written again and again."""
    if not _has_fio(host):
        return MediumBaseline(missing=(NO_FLUSHES_BY_FIO,))
    with _removed(host, f"{folder}/flushed") as path:
        return _taken(MediumBaseline(), "flushes", _Fio(host, path, SMALLEST_BYTES, seconds).flushes)


def measure_device(host: Host, device: str, size_bytes: int, *, seconds: float = 2.0) -> MediumBaseline:
    """Measure what a block device tells without a byte written to it: its reads."""
    found = MediumBaseline().lacking(NOTHING_WRITTEN)
    if not _has_fio(host):
        return found.lacking(NO_FIO)
    fio = _Fio(host, device, size_bytes, seconds, read_only=True)
    return _taken(_taken(found, "sequential reads", fio.sequential_reads), "random reads", fio.random_reads)


Measure = Callable[[MediumBaseline], MediumBaseline]


def _taken(found: MediumBaseline, what: str, measure: Measure) -> MediumBaseline:
    try:
        return measure(found)
    except HostLost:
        raise
    except PgstrataError as error:
        return found.lacking(f"{what}: {error.message}")


@dataclass(frozen=True)
class _FsyncTest:
    """pg_test_fsync of a server."""

    host: Host
    program: str
    path: str
    seconds: float

    def flushes(self, found: MediumBaseline) -> MediumBaseline:
        asked = plan_pg_test_fsync(self.program, self.path, seconds_per_test=max(1, round(self.seconds / 2)))
        rates = parse_pg_test_fsync(self.host.run(asked).stdout)
        return replace(found, flushes_per_s=rates.fdatasync, flushes_by="pg_test_fsync")


@dataclass(frozen=True)
class _Fio:
    """fio on one file or device."""

    host: Host
    path: str
    size_bytes: int
    seconds: float
    read_only: bool = False

    def flushes(self, found: MediumBaseline) -> MediumBaseline:
        asked = plan_fio(
            self.path,
            pattern="write",
            size_bytes=self.size_bytes,
            direct=False,
            fdatasync_every=1,
            runtime_s=self.seconds,
        )
        done = parse_fio(self.host.run(asked).stdout)
        return replace(found, flushes_per_s=done.write_iops, flushes_by="fio")

    def sequential_writes(self, found: MediumBaseline) -> MediumBaseline:
        done = self._run("write", STREAM_BYTES, None)
        return replace(found, sequential_write_bytes_per_s=done.write_iops * STREAM_BYTES)

    def sequential_reads(self, found: MediumBaseline) -> MediumBaseline:
        done = self._run("read", STREAM_BYTES, self.seconds)
        return replace(found, sequential_read_bytes_per_s=done.read_iops * STREAM_BYTES)

    def random_reads(self, found: MediumBaseline) -> MediumBaseline:
        return replace(found, random_reads_per_s=self._run("randread", BLOCK_BYTES, self.seconds).read_iops)

    def random_writes(self, found: MediumBaseline) -> MediumBaseline:
        return replace(found, random_writes_per_s=self._run("randwrite", BLOCK_BYTES, self.seconds).write_iops)

    def _run(self, pattern: Pattern, block_bytes: int, runtime_s: float | None) -> FioResult:
        command = plan_fio(
            self.path,
            pattern=pattern,
            size_bytes=self.size_bytes,
            block_bytes=block_bytes,
            depth=DEPTH,
            runtime_s=runtime_s,
            read_only=self.read_only,
        )
        return parse_fio(self.host.run(command).stdout)


def _has_fio(host: Host) -> bool:
    return host.run(Command(("fio", "--version")), check=False).exit_code == 0


@contextmanager
def _removed(host: Host, path: str) -> Iterator[str]:
    try:
        yield path
    finally:
        host.remove(path)
