"""fio: arguments, and its JSON as numbers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from pgstrata.errors import PgstrataError, parser_of
from pgstrata.host.protocol import Command

Pattern = Literal["read", "write", "randread", "randwrite", "randrw"]


@dataclass(frozen=True)
class FioResult:
    """Totals of one fio run, over all of its jobs."""

    read_ios: int
    read_bytes: int
    read_iops: float
    write_ios: int
    write_bytes: int
    write_iops: float
    syncs: int


def plan_fio(
    path: str,
    *,
    pattern: Pattern,
    size_bytes: int,
    block_bytes: int = 8192,
    depth: int = 1,
    direct: bool = True,
    fsync_every: int = 0,
    fdatasync_every: int = 0,
    runtime_s: float | None = None,
    rate_iops: int | None = None,
    read_only: bool = False,
    timeout_s: float = 600.0,
) -> Command:
    """One job on a file or block device; `fsync_every` or `fdatasync_every` writes a flush follows.

    Without `runtime_s` it does `size_bytes` once. With `read_only` fio refuses to write whatever else it is told.
    """
    # fio takes a colon for the end of a name.
    escaped = path.replace(":", r"\:")
    options = ["--name=pgstrata", f"--filename={escaped}", f"--rw={pattern}", f"--size={size_bytes}"]
    options += [f"--bs={block_bytes}", f"--iodepth={depth}", f"--direct={int(direct)}", "--randseed=1"]
    options += ["--ioengine=libaio" if depth > 1 else "--ioengine=psync", "--output-format=json"]
    if fsync_every:
        options.append(f"--fsync={fsync_every}")
    if fdatasync_every:
        options.append(f"--fdatasync={fdatasync_every}")
    if runtime_s is not None:
        options += [f"--runtime={round(1000 * runtime_s)}ms", "--time_based"]
    if rate_iops is not None:
        options.append(f"--rate_iops={rate_iops}")
    if read_only:
        options.append("--readonly")
    return Command(("fio", *options), timeout_s=timeout_s, cwd="/")


@parser_of("fio")
def parse_fio(text: str) -> FioResult:
    """The totals in fio's JSON (`--output-format=json`); PgstrataError when a job failed or the text is no JSON."""
    try:
        # fio prints notes for people before the JSON.
        found: dict[str, Any] = json.loads(text[text.index("{") :])
        jobs: list[dict[str, Any]] = found["jobs"]
    except (ValueError, KeyError) as error:
        raise PgstrataError(f"fio gave no JSON result: {text[:200]!r}") from error
    failed = [job["error"] for job in jobs if job["error"]]
    if failed:
        raise PgstrataError(f"fio failed with error {failed[0]}")
    return FioResult(
        read_ios=_total(jobs, "read", "total_ios"),
        read_bytes=_total(jobs, "read", "io_bytes"),
        read_iops=sum(job["read"]["iops"] for job in jobs),
        write_ios=_total(jobs, "write", "total_ios"),
        write_bytes=_total(jobs, "write", "io_bytes"),
        write_iops=sum(job["write"]["iops"] for job in jobs),
        syncs=_total(jobs, "sync", "total_ios"),
    )


def _total(jobs: list[dict[str, Any]], kind: str, name: str) -> int:
    return sum(job[kind].get(name, 0) for job in jobs)
