"""Checkpoints in the server's log (log_checkpoints=on), PostgreSQL 13 to 18, as rows of CHECKPOINT_COLUMNS.

Reads the prefix that postgres.server sets: `%m [%p] ` with log_timezone UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

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
        "start_t_s": _t_s(match, origin_epoch_s),
        "end_t_s": None,
        "kind": kind,
        "buffers_written": None,
        "write_s": None,
        "sync_s": None,
        "total_s": None,
    }


def _completed(match: re.Match[str], origin_epoch_s: float) -> dict[str, Any]:
    return {
        "end_t_s": _t_s(match, origin_epoch_s),
        "buffers_written": int(match["buffers"]),
        "write_s": float(match["write"]),
        "sync_s": float(match["sync"]),
        "total_s": float(match["total"]),
    }


def _t_s(match: re.Match[str], origin_epoch_s: float) -> float:
    at = datetime.strptime(match["at"], "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC)
    return round(at.timestamp() - origin_epoch_s, 3)
