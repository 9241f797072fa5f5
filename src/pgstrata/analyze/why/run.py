"""The use of time in one run, and its load on the machine, from its recorded series.

A closed loop of c clients with r transactions per second spends c / r of session time on each. Every second the probe
recorded the wait of each session in a statement; sessions in none waited for the client. So the shares of session time,
times c / r, are times per transaction that add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pgstrata.analyze.finding import TimeKind
from pgstrata.analyze.stats.interval import Floats
from pgstrata.record.reader import CellData
from pgstrata.spec.stack import Stack

Event = tuple[TimeKind, str]

KINDS: tuple[TimeKind, ...] = ("wal", "files", "locks", "running", "client", "other")
GRACE_S = 1.0
"""Tolerance after the end of a run: a rate is stamped at the end of its second."""

_WAL_LOCKS = frozenset({"walwrite", "walwritelock"})
"""LWLocks of sessions that wait for another session to write and flush WAL for them, too."""
_FILE_WAITS = frozenset({"bufferio", "buffer_io"})
"""Waits of sessions for another session's read or write of a page."""
_BY_TYPE: Mapping[str, TimeKind] = {
    "cpu": "running",
    "io": "files",
    "lwlock": "locks",
    "lock": "locks",
    "bufferpin": "locks",
    "buffer": "locks",
    "client": "client",
}
_SYSTEM = (
    "cpu_user", "cpu_system", "cpu_iowait", "cpu_steal", "pressure_cpu", "pressure_io", "dirty_bytes",
    "server_cpu", "server_cpu_wait", "client_cpu", "client_cpu_wait",
)  # fmt: skip
_DEVICES = ("flushes_per_s", "writes_per_s", "write_bytes_per_s", "read_bytes_per_s", "in_flight", "utilisation")


@dataclass(frozen=True)
class RunReading:
    """One run: times per transaction in ms, and figures by their names in `findings.StackProfile`."""

    block: int
    clients: int
    time_ms: float
    parts: Mapping[TimeKind, float]
    """Times by kind; they add up to `time_ms`."""
    events: Mapping[Event, float]
    """The same times, by wait event."""
    figures: Mapping[str, float]
    """Figures by name, without those that were not recorded."""


def kind_of(wait_event_type: str, wait_event: str) -> TimeKind:
    """Return the kind of time of a wait event; the case of names differs between major versions."""
    kind, event = wait_event_type.lower(), wait_event.lower()
    if (kind == "io" and event.startswith("wal")) or (kind == "lwlock" and event in _WAL_LOCKS):
        return "wal"
    if event in _FILE_WAITS:
        return "files"
    if event == "spindelay":
        return "locks"
    return _BY_TYPE.get(kind, "other")


def read_run(run: CellData, stack: Stack) -> RunReading | None:
    """Read a run; None if no sessions were recorded, or no transaction was made."""
    clients, tps = run.cell.clients, run.result.tps
    sessions = _sessions(run)
    if sessions is None or not clients or not tps:
        return None
    time_ms = 1000 * clients / tps
    active = sum(sessions.values())
    # Sessions of others may be included: the total is the time of the clients.
    each_ms = time_ms / max(active, clients)
    events = {event: count * each_ms for event, count in sessions.items()}
    idle: Event = ("client", "idle")
    events[idle] = events.get(idle, 0.0) + time_ms - active * each_ms
    parts = {kind: math.fsum(ms for (own, _), ms in events.items() if own == kind) for kind in KINDS}
    return RunReading(
        run.block,
        clients,
        time_ms,
        parts,
        events,
        {**_of_result(run, tps), **_of_system(run), **_of_devices(run, stack, tps)},
    )


def _sessions(run: CellData) -> dict[Event, float] | None:
    """Return the mean number of sessions in a statement, by wait event."""
    samples = _within(run, run.table("postgres", ["t_s"])["t_s"], grace_s=0.0).sum()
    if not samples or not run.has("waits"):
        return None
    found: dict[Event, float] = {}
    table = run.table("waits")
    inside = _within(run, table["t_s"], grace_s=0.0)
    columns = (table[name].tolist() for name in ("wait_event_type", "wait_event", "sessions"))
    for kept, kind, name, sessions in zip(inside, *columns, strict=True):
        if kept and kind and name and sessions > 0:
            event = kind_of(kind, name), name
            found[event] = found.get(event, 0.0) + float(sessions) / float(samples)
    return found


def _within(run: CellData, t_s: Floats, grace_s: float = GRACE_S) -> npt.NDArray[np.bool_]:
    inside: npt.NDArray[np.bool_] = (t_s > 0) & (t_s <= run.result.duration_s + grace_s)
    return inside


def _of_result(run: CellData, tps: float) -> dict[str, float]:
    result = run.result
    found = {}
    if result.wal_bytes is not None and result.transactions:
        found["wal_bytes_per_transaction"] = result.wal_bytes / result.transactions
    for name, counter in (("wal_syncs_per_transaction", "wal_syncs"), ("wal_writes_per_transaction", "wal_writes")):
        rate = _rate(run, counter)
        if rate is not None:
            found[name] = rate / tps
    return found


def _rate(run: CellData, counter: str) -> float | None:
    """Return the rate of a counter of the server, per second, over the samples of the run."""
    table = run.table("postgres", ["t_s", counter])
    t_s, values = table["t_s"], table[counter]
    known = _within(run, t_s) & np.isfinite(values)
    t_s, values = t_s[known], values[known]
    if t_s.size < 2 or not t_s[-1] > t_s[0]:
        return None
    return float((values[-1] - values[0]) / (t_s[-1] - t_s[0]))


def _of_system(run: CellData) -> dict[str, float]:
    table = run.table("system", ["t_s", *_SYSTEM])
    inside = _within(run, table["t_s"])
    found = {}
    for name in _SYSTEM:
        mean = _mean(table[name][inside])
        if mean is not None:
            found[name] = mean
    if "cpu_user" in found and "cpu_system" in found:
        found["cpu_busy"] = found["cpu_user"] + found["cpu_system"]
    return found


def _of_devices(run: CellData, stack: Stack, tps: float) -> dict[str, float]:
    """Return the utilisation of the busiest device; flushes and bytes per transaction at the media, and below the
    filesystems."""
    devices = list(_devices(run))
    found: dict[str, float] = {}
    if not devices:
        return found
    busiest = max(devices, key=lambda d: d.means["utilisation"] or 0.0)
    for name, column in (("device_utilisation", "utilisation"), ("device_queue", "in_flight")):
        value = busiest.means[column]
        if value is not None:
            found[name] = value
    bottom, top = _ends(devices, stack)
    for name, column, ends in (
        ("flushes_per_transaction", "flushes_per_s", bottom),
        ("writes_per_transaction", "writes_per_s", bottom),
        ("device_bytes_per_transaction", "write_bytes_per_s", bottom),
        ("device_read_bytes_per_transaction", "read_bytes_per_s", bottom),
        ("filesystem_bytes_per_transaction", "write_bytes_per_s", top),
    ):
        rates = [device.means[column] for device in ends]
        known = [rate for rate in rates if rate is not None]
        if ends and len(known) == len(rates):
            found[name] = math.fsum(known) / tps
    wal = run.result.wal_bytes
    if wal and "filesystem_bytes_per_transaction" in found:
        found["filesystem_over_wal"] = found["filesystem_bytes_per_transaction"] * run.result.transactions / wal
    if found.get("filesystem_bytes_per_transaction"):
        over = found["device_bytes_per_transaction"] / found["filesystem_bytes_per_transaction"]
        found["device_over_filesystem"] = over
    return found


@dataclass(frozen=True)
class _Device:
    role: str
    means: Mapping[str, float | None]


def _devices(run: CellData) -> Iterator[_Device]:
    """Yield the devices in the order of the record: from the medium up."""
    table = run.table("devices")
    inside = _within(run, table["t_s"])
    names, roles = (table[column] for column in ("device", "role"))
    columns = {name: table[name] for name in _DEVICES}
    for name in dict.fromkeys(names[inside].tolist()):
        rows = inside & (names == name)
        yield _Device(str(roles[rows][0]), {column: _mean(values[rows]) for column, values in columns.items()})


def _ends(devices: Sequence[_Device], stack: Stack) -> tuple[list[_Device], list[_Device]]:
    """Return the media, and the devices below the filesystems: the last devices of a volume with block layers, else
    the media.

    If a filesystem has devices of its own next to block layers, the record does not tell them apart: no top.
    """
    bottom: list[_Device] = []
    top: list[_Device] = []
    known = True
    for role, volume in stack.volumes.items():
        own = [device for device in devices if device.role == role]
        tops = volume.count_on_top
        layered = bool(volume.layers) and len(own) > tops
        known = known and not (layered and volume.own_devices)
        bottom += own[:-tops] if layered else own
        top += own[-tops:] if layered else own
    return bottom, top if known else []


def _mean(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else None
