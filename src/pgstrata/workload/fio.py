"""fio as a check of the device under PostgreSQL: arguments, and its JSON as numbers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from pgstrata.errors import PgstrataError, parser_of
from pgstrata.host.protocol import Command

Pattern = Literal["read", "write", "randread", "randwrite", "randrw"]


@dataclass(frozen=True)
class FioResult:
    """Totals of one fio run. Completion latencies in milliseconds; None where nothing of that kind ran."""

    version: str
    read_ios: int
    read_bytes: int
    read_iops: float
    write_ios: int
    write_bytes: int
    write_iops: float
    syncs: int
    runtime_s: float
    read_latency_avg_ms: float | None = None
    write_latency_avg_ms: float | None = None
    sync_latency_avg_ms: float | None = None
    sync_latency_p99_ms: float | None = None


def plan_fio(
    path: str,
    *,
    pattern: Pattern,
    size_bytes: int,
    block_bytes: int = 8192,
    depth: int = 1,
    direct: bool = True,
    fsync_every: int = 0,
    runtime_s: float | None = None,
    rate_iops: int | None = None,
    seed: int = 1,
    timeout_s: float = 3600.0,
    program: str = "fio",
) -> Command:
    """One job on a file or block device; `fsync_every` writes a flush follows. Without `runtime_s` it does
    `size_bytes` once."""
    options = ["--name=pgstrata", f"--filename={path}", f"--rw={pattern}", f"--size={size_bytes}"]
    options += [f"--bs={block_bytes}", f"--iodepth={depth}", f"--direct={int(direct)}", f"--randseed={seed}"]
    options += ["--ioengine=libaio" if depth > 1 else "--ioengine=psync", "--output-format=json"]
    if fsync_every:
        options.append(f"--fsync={fsync_every}")
    if runtime_s is not None:
        options += [f"--runtime={runtime_s:g}", "--time_based"]
    if rate_iops is not None:
        options.append(f"--rate_iops={rate_iops}")
    return Command((program, *options), timeout_s=timeout_s, cwd="/")


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
        version=found["fio version"],
        read_ios=_total(jobs, "read", "total_ios"),
        read_bytes=_total(jobs, "read", "io_bytes"),
        read_iops=sum(job["read"]["iops"] for job in jobs),
        write_ios=_total(jobs, "write", "total_ios"),
        write_bytes=_total(jobs, "write", "io_bytes"),
        write_iops=sum(job["write"]["iops"] for job in jobs),
        syncs=_total(jobs, "sync", "total_ios"),
        runtime_s=max(job["job_runtime"] for job in jobs) / 1000,
        read_latency_avg_ms=_mean_ms(jobs, "read", "clat_ns"),
        write_latency_avg_ms=_mean_ms(jobs, "write", "clat_ns"),
        sync_latency_avg_ms=_mean_ms(jobs, "sync", "lat_ns"),
        sync_latency_p99_ms=_p99_ms(jobs),
    )


def _total(jobs: list[dict[str, Any]], kind: str, name: str) -> int:
    return sum(job[kind].get(name, 0) for job in jobs)


def _mean_ms(jobs: list[dict[str, Any]], kind: str, name: str) -> float | None:
    """The mean over all I/Os of all jobs: each job's mean counts by its number of I/Os."""
    pairs = [(job[kind][name]["mean"], job[kind]["total_ios"]) for job in jobs if name in job[kind]]
    count = sum(n for _, n in pairs)
    return sum(mean * n for mean, n in pairs) / count / 1e6 if count else None


def _p99_ms(jobs: list[dict[str, Any]]) -> float | None:
    """Percentiles cannot be averaged over jobs, so only a single job has one."""
    percentiles = jobs[0]["sync"].get("lat_ns", {}).get("percentile", {}) if len(jobs) == 1 else {}
    return percentiles["99.000000"] / 1e6 if "99.000000" in percentiles else None
