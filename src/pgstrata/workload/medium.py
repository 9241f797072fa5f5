"""The baseline of a medium: how often it flushes, how fast it reads and writes, before PostgreSQL comes into it.

Writes into one folder that the caller made and removes; of a device without one only what can be read is measured.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from pgstrata.errors import PgstrataError, parser_of
from pgstrata.host.protocol import Command, Host, HostLost

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

Pattern = Literal["read", "write", "randread", "randwrite"]


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
        """Return the same with one more reason."""
        return replace(self, missing=(*self.missing, why))


def measure_medium(host: Host, folder: str, server_binaries: str | None, *, seconds: float = 2.0) -> MediumBaseline:
    """Return the baseline of what a folder lies on, in files in it; each rate is measured for `seconds`.

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
            found = _taken(found, "flushes", partial(_flushes_by_fsync_test, host, fsync, path, seconds))
        elif has_fio:
            found = _taken(found, "flushes", partial(_flushes_by_fio, host, path, seconds))
        else:
            found = found.lacking(NO_FLUSHES)
    if not has_fio:
        return found.lacking(NO_FIO)
    with _removed(host, f"{folder}/rates") as path:
        return _with_rates(found, host, path, size_bytes, seconds)


def measure_flushes(host: Host, folder: str, *, seconds: float) -> MediumBaseline:
    """Return the flushes alone, by fio; 16 MiB are written again and again."""
    if not _has_fio(host):
        return MediumBaseline(missing=(NO_FLUSHES_BY_FIO,))
    with _removed(host, f"{folder}/flushed") as path:
        return _taken(MediumBaseline(), "flushes", partial(_flushes_by_fio, host, path, seconds))


def measure_device(host: Host, device: str, size_bytes: int, *, seconds: float = 2.0) -> MediumBaseline:
    """Return what a block device tells without a byte written to it: its reads."""
    found = MediumBaseline().lacking(NOTHING_WRITTEN)
    if not _has_fio(host):
        return found.lacking(NO_FIO)
    return _with_rates(found, host, device, size_bytes, seconds, read_only=True)


def _taken(found: MediumBaseline, what: str, measure: Callable[[], Mapping[str, Any]]) -> MediumBaseline:
    try:
        return replace(found, **measure())
    except HostLost:
        raise
    except PgstrataError as error:
        return found.lacking(f"{what}: {error.message}")


_RATES: tuple[tuple[str, Pattern, str, int, int], ...] = (
    ("sequential writes", "write", "sequential_write_bytes_per_s", STREAM_BYTES, STREAM_BYTES),
    ("sequential reads", "read", "sequential_read_bytes_per_s", STREAM_BYTES, STREAM_BYTES),
    ("random reads", "randread", "random_reads_per_s", BLOCK_BYTES, 1),
    ("random writes", "randwrite", "random_writes_per_s", BLOCK_BYTES, 1),
)
"""Name, pattern, field, bytes of a request and what one request counts; the first one lays the file out."""


def _with_rates(
    found: MediumBaseline, host: Host, path: str, size_bytes: int, seconds: float, *, read_only: bool = False
) -> MediumBaseline:
    for what, pattern, field, block_bytes, counts in _RATES:
        if read_only and "write" in pattern:
            continue
        command = plan_fio(
            path,
            pattern=pattern,
            size_bytes=size_bytes,
            block_bytes=block_bytes,
            depth=DEPTH,
            runtime_s=None if pattern == "write" else seconds,
            read_only=read_only,
        )
        found = _taken(found, what, partial(_rate, host, command, pattern, field, counts))
    return found


def _rate(host: Host, command: Command, pattern: Pattern, field: str, counts: int) -> Mapping[str, Any]:
    done = parse_fio(host.run(command).stdout)
    return {field: done["read" if "read" in pattern else "write"] * counts}


def _flushes_by_fio(host: Host, path: str, seconds: float) -> Mapping[str, Any]:
    command = plan_fio(
        path, pattern="write", size_bytes=SMALLEST_BYTES, direct=False, fdatasync_every=1, runtime_s=seconds
    )
    return {"flushes_per_s": parse_fio(host.run(command).stdout)["write"], "flushes_by": "fio"}


def _flushes_by_fsync_test(host: Host, program: str, path: str, seconds: float) -> Mapping[str, Any]:
    command = plan_pg_test_fsync(program, path, max(1, round(seconds / 2)))
    return {"flushes_per_s": parse_pg_test_fsync(host.run(command).stdout), "flushes_by": "pg_test_fsync"}


def _has_fio(host: Host) -> bool:
    return host.run(Command(("fio", "--version")), check=False).exit_code == 0


@contextmanager
def _removed(host: Host, path: str) -> Iterator[str]:
    try:
        yield path
    finally:
        host.remove(path)


# ---------------------------------------------------------------- fio


def plan_fio(
    path: str,
    *,
    pattern: Pattern,
    size_bytes: int,
    block_bytes: int = BLOCK_BYTES,
    depth: int = 1,
    direct: bool = True,
    fdatasync_every: int = 0,
    runtime_s: float | None = None,
    read_only: bool = False,
) -> Command:
    """Return one job on a file or block device; a flush follows every `fdatasync_every` writes.

    Without `runtime_s` it does `size_bytes` once. With `read_only` fio refuses to write whatever else it is told.
    """
    # fio takes a colon for the end of a name.
    escaped = path.replace(":", r"\:")
    options = ["--name=pgstrata", f"--filename={escaped}", f"--rw={pattern}", f"--size={size_bytes}"]
    options += [f"--bs={block_bytes}", f"--iodepth={depth}", f"--direct={int(direct)}", "--randseed=1"]
    options += ["--ioengine=libaio" if depth > 1 else "--ioengine=psync", "--output-format=json"]
    if fdatasync_every:
        options.append(f"--fdatasync={fdatasync_every}")
    if runtime_s is not None:
        options += [f"--runtime={round(1000 * runtime_s)}ms", "--time_based"]
    if read_only:
        options.append("--readonly")
    return Command(("fio", *options), timeout_s=600.0, cwd="/")


@parser_of("fio")
def parse_fio(text: str) -> dict[str, float]:
    """Return reads and writes a second over all jobs of fio's JSON (`read`, `write`); PgstrataError when a job failed
    or the text is no JSON."""
    try:
        # fio prints notes for people before the JSON.
        jobs: list[dict[str, Any]] = json.loads(text[text.index("{") :])["jobs"]
    except (ValueError, KeyError) as error:
        raise PgstrataError(f"fio gave no JSON result: {text[:200]!r}") from error
    failed = [job["error"] for job in jobs if job["error"]]
    if failed:
        raise PgstrataError(f"fio failed with error {failed[0]}")
    return {kind: sum(job[kind]["iops"] for job in jobs) for kind in ("read", "write")}


# ---------------------------------------------------------------- pg_test_fsync


def plan_pg_test_fsync(program: str, path: str, seconds_per_test: int) -> Command:
    """Return a run on a file that it makes and removes; about 15 tests of `seconds_per_test`."""
    argv = (program, f"--secs-per-test={seconds_per_test}", f"--filename={path}")
    return Command(argv, timeout_s=60.0 + 30 * seconds_per_test, cwd="/")


@parser_of("pg_test_fsync")
def parse_pg_test_fsync(text: str) -> float:
    """Return how many times a second an 8 kB write is made durable by fdatasync, the default wal_sync_method on Linux;
    PgstrataError for a text without that rate."""
    section = text.partition("using one 8kB write:\n")[2].partition("\n\n")[0]
    rate = re.search(r"^\s+fdatasync\s+([\d.]+) ops/sec", section, re.MULTILINE)
    if rate is None:
        raise PgstrataError(f"pg_test_fsync gave no rate of fdatasync: {text[:200]!r}")
    return float(rate[1])
