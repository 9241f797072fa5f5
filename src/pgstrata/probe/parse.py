"""Raw lines of the probes as rows with the columns of record.schema.

Rates come from the counters of two consecutive samples and stand at the later one. Times `t_s` count from
`origin_epoch_s`, the start of the measured run by the clock of the host under test. The last line of a file may be
torn (the probe was killed); any other line that is not JSON is an error. Checkpoints are read from the server's log
(log_checkpoints=on, PostgreSQL 13 to 18), whose prefix is `%m [%p] ` with log_timezone UTC.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from pgstrata.errors import TrialError
from pgstrata.probe.postgres import COUNTERS

SECTOR_BYTES = 512
"""The unit of /sys/block/*/stat, whatever the device's own sector size."""

_READS, _READ_SECTORS, _WRITES, _WRITE_SECTORS, _IN_FLIGHT, _IO_TICKS_MS = 0, 2, 4, 6, 8, 9
_DISCARDS, _FLUSHES = 11, 15
"""Fields of /sys/block/*/stat (kernel: Documentation/block/stat.rst); flushes are counted since Linux 5.5."""

_CPU = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")

Row = dict[str, Any]


def parse_lines(text: str) -> list[dict[str, Any]]:
    """The JSON objects of a probe's file; TrialError for a broken line that is not the last."""
    lines = [line for line in text.split("\n") if line.strip()]
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number == len(lines) and not text.endswith("\n"):
                break
            raise TrialError(f"line {number} of a probe's output is not JSON: {line[:200]!r}") from error
    return found


def device_rows(samples: Iterable[dict[str, Any]], roles: Mapping[str, str], origin_epoch_s: float) -> list[Row]:
    """DEVICE_COLUMNS: one row a second for each device; `roles` maps `major:minor` to the role in the stack.

    `utilisation` is the share of time with at least one request in flight (io_ticks). The kernel counts a flush
    without data among the writes as well, so `writes_per_s` includes them; bytes are data alone.
    """
    rows = []
    for before, after, elapsed_s in _pairs(samples):
        for device, role in roles.items():
            if device in before["disk"] and device in after["disk"]:
                fields = _device_row(before["disk"][device], after["disk"][device], elapsed_s)
                rows.append({"t_s": _t_s(after, origin_epoch_s), "device": device, "role": role, **fields})
    return rows


def _device_row(before: list[int], after: list[int], elapsed_s: float) -> Row:
    def rate(field: int, factor: int = 1) -> float | None:
        if field >= len(after):  # older kernels count neither discards nor flushes
            return None
        return max(0, after[field] - before[field]) * factor / elapsed_s

    busy = rate(_IO_TICKS_MS) or 0.0
    return {
        "reads_per_s": rate(_READS),
        "writes_per_s": rate(_WRITES),
        "flushes_per_s": rate(_FLUSHES),
        "discards_per_s": rate(_DISCARDS),
        "read_bytes_per_s": rate(_READ_SECTORS, SECTOR_BYTES),
        "write_bytes_per_s": rate(_WRITE_SECTORS, SECTOR_BYTES),
        "in_flight": after[_IN_FLIGHT],
        "utilisation": min(1.0, busy / 1000.0),
    }


def system_rows(samples: Iterable[dict[str, Any]], origin_epoch_s: float) -> list[Row]:
    """SYSTEM_COLUMNS: shares of all CPUs (0 to 1), bytes waiting for writeback, and pressure.

    Pressure is the share of time in which some task waited for the resource (PSI `some`); null without PSI.
    `server_cpu` is how many processors the server's processes used, `server_cpu_wait` how many of them waited for one,
    in the mean over the time; `client_cpu` and `client_cpu_wait` are the same of one thread of the client.
    """
    rows = []
    for before, after, elapsed_s in _pairs(samples):
        ticks = {n: max(0, a - b) for n, b, a in zip(_CPU, before["cpu"], after["cpu"], strict=False)}
        total = sum(ticks.values()) or 1
        row: Row = {
            "t_s": _t_s(after, origin_epoch_s),
            "cpu_user": (ticks["user"] + ticks["nice"]) / total,
            "cpu_system": (ticks["system"] + ticks["irq"] + ticks["softirq"]) / total,
            "cpu_iowait": ticks["iowait"] / total,
            "cpu_idle": ticks["idle"] / total,
            "cpu_steal": ticks["steal"] / total,
            "dirty_bytes": _kb(after, "dirty_kb"),
            "writeback_bytes": _kb(after, "writeback_kb"),
        }
        for resource in ("cpu", "io", "memory"):
            row[f"pressure_{resource}"] = _pressure(before, after, resource, elapsed_s)
        for program in ("server", "client"):
            row |= _program(before, after, program, elapsed_s)
        rows.append(row)
    return rows


def _kb(sample: dict[str, Any], key: str) -> int | None:
    return sample[key] * 1024 if key in sample else None


def _pressure(before: dict[str, Any], after: dict[str, Any], resource: str, elapsed_s: float) -> float | None:
    if resource not in before["pressure"] or resource not in after["pressure"]:
        return None
    waited_us = after["pressure"][resource] - before["pressure"][resource]
    return min(1.0, max(0.0, float(waited_us) / 1e6 / elapsed_s))


def _program(before: dict[str, Any], after: dict[str, Any], name: str, elapsed_s: float) -> Row:
    """Null where the process was not there in both samples."""
    row: Row = {f"{name}_cpu": None, f"{name}_cpu_wait": None}
    tasks = after.get(name, {}).get("tasks", 0)
    if name in before and tasks:
        divisor = elapsed_s * (tasks if name == "client" else 1)
        row[f"{name}_cpu"] = (after[name]["cpu_s"] - before[name]["cpu_s"]) / divisor
        row[f"{name}_cpu_wait"] = (after[name]["wait_s"] - before[name]["wait_s"]) / divisor
    return row


def postgres_rows(samples: list[dict[str, Any]], origin_epoch_s: float) -> list[Row]:
    """POSTGRES_COLUMNS: counters since the first sample; null where that major does not count something."""
    if not samples:
        return []
    first = samples[0]
    rows = []
    for sample in samples:
        row: Row = {"t_s": _t_s(sample, origin_epoch_s)}
        for name in COUNTERS:
            known = sample[name] is not None and first[name] is not None
            row[name] = sample[name] - first[name] if known else None
        rows.append(row)
    return rows


def wait_rows(samples: Iterable[dict[str, Any]], origin_epoch_s: float) -> list[Row]:
    """WAIT_COLUMNS: how many client sessions in a statement waited for what, at each sample."""
    return [
        {"t_s": _t_s(sample, origin_epoch_s), "wait_event_type": kind, "wait_event": name, "sessions": sessions}
        for sample in samples
        for kind, name, sessions in sample["waits"]
    ]


def probe_cpu_s(samples: list[dict[str, Any]]) -> float:
    """CPU seconds that the host probe itself used between its first and last sample."""
    return float(samples[-1]["self_s"] - samples[0]["self_s"]) if samples else 0.0


def _pairs(samples: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any], float]]:
    for before, after in itertools.pairwise(samples):
        elapsed_s = after["mono"] - before["mono"]
        if elapsed_s > 0:
            yield before, after, elapsed_s


def _t_s(sample: dict[str, Any], origin_epoch_s: float) -> float:
    return round(float(sample["time"]) - origin_epoch_s, 3)


_PREFIX = r"^(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) UTC \[(?P<pid>\d+)\] LOG:  "
_START = re.compile(_PREFIX + r"(?P<what>checkpoint|restartpoint) starting:(?P<flags>.*)$")
_COMPLETE = re.compile(
    _PREFIX + r"(?P<what>checkpoint|restartpoint) complete: wrote (?P<buffers>\d+) buffers \([\d.]+%\).*"
    r"; write=(?P<write>[\d.]+) s, sync=(?P<sync>[\d.]+) s, total=(?P<total>[\d.]+) s;"
)
_KINDS = {
    "shutdown": "shutdown",
    "end-of-recovery": "end-of-recovery",
    "force": "requested",
    "time": "time",
    "wal": "wal",
}
"""Cause of a checkpoint, by the flags in the log, the first that is there: a request may coincide with others."""


def checkpoint_rows(log: str, origin_epoch_s: float) -> list[dict[str, Any]]:
    """The checkpoints of a log, in order. One that did not end has null times and buffers.

    `kind` is what caused it: `time`, `wal` (max_wal_size), `shutdown`, `end-of-recovery`, or `requested`. Times in
    the log are rounded to milliseconds.
    """
    rows: list[dict[str, Any]] = []
    for line in log.splitlines():
        start = _START.match(line)
        if start:
            rows.append(_started(start, origin_epoch_s))
            continue
        complete = _COMPLETE.match(line)
        if complete and rows and rows[-1]["end_t_s"] is None:
            rows[-1].update(_completed(complete, origin_epoch_s))
    return rows


def _started(match: re.Match[str], origin_epoch_s: float) -> dict[str, Any]:
    flags = match["flags"].split()
    kind = next((kind for flag, kind in _KINDS.items() if flag in flags), "requested")
    return {
        "start_t_s": _logged_t_s(match, origin_epoch_s),
        "end_t_s": None,
        "kind": kind,
        "buffers_written": None,
        "write_s": None,
        "sync_s": None,
        "total_s": None,
    }


def _completed(match: re.Match[str], origin_epoch_s: float) -> dict[str, Any]:
    return {
        "end_t_s": _logged_t_s(match, origin_epoch_s),
        "buffers_written": int(match["buffers"]),
        "write_s": float(match["write"]),
        "sync_s": float(match["sync"]),
        "total_s": float(match["total"]),
    }


def _logged_t_s(match: re.Match[str], origin_epoch_s: float) -> float:
    at = datetime.strptime(match["at"], "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC)
    return round(at.timestamp() - origin_epoch_s, 3)
