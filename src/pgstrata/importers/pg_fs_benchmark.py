"""`pgstrata import pg-fs-benchmark`: the layout of Tomas Vondra's public raw data, of any machine.

    <machine>/<run>/results.csv    start;end;raid;[config;][fs;]scale;mode;tps;duration;wal_bytes
    <machine>/<run>/init.csv       the same labels; step (init, vacuum);seconds;wal_bytes
    <machine>/<run>/<raid>/<config or fs>/<scale>/run-(rw|ro)-<n>/   pgbench.log, stat-database.csv, stat-bgwriter.csv,
                                                                     sizes.csv

Rows of results.csv without a directory are imported without series, directories without a row from their own files. By
the scripts of the benchmark, mode `ro` is pgbench's select-only and `rw` its simple update. The first 120 and last 30
samples of a series, the start and end of the run, do not count.
"""

from __future__ import annotations

import csv
import re
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pgstrata.errors import UsageError
from pgstrata.importers.runs import (
    ImportedCell,
    ImportedTrial,
    ImportSummary,
    imported_result,
    imported_stack,
    write_campaign,
)
from pgstrata.record.schema import HostFacts, LoadRecord, SpaceRecord
from pgstrata.record.source import MAX_MEMBERS, MAX_RATIO, SMALL_BYTES
from pgstrata.spec.campaign import Goal
from pgstrata.spec.layers.btrfs import Btrfs
from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.layers.kind import Filesystem
from pgstrata.spec.layers.xfs import Xfs
from pgstrata.spec.layers.zfs import Zfs
from pgstrata.spec.stack import Stack
from pgstrata.spec.workload import Cell
from pgstrata.workload.pgbench_output import PgbenchOutputError, PgbenchResult, parse_result

FILESYSTEMS: Mapping[str, type[Ext4 | Xfs | Btrfs | Zfs]] = {"ext4": Ext4, "xfs": Xfs, "btrfs": Btrfs, "zfs": Zfs}
SCRIPTS = {"ro": "select-only", "rw": "simple-update"}
CONFIG_SETTINGS = {
    "no-fpw": {"full_page_writes": "off"},
    "no-fpw-tuned": {"full_page_writes": "off", "wal_init_zero": "off", "wal_recycle": "off"},
}
"""Settings behind the author's names of zfs configurations (see studies/filesystems-raid-ssd)."""
SETTLED_SAMPLES = (120, 30)
_RUN = re.compile(r"run-(ro|rw)-(\d+)$")
_LAYOUT = "give the folder of one machine, which holds <run>/results.csv and <run>/<raid>/<fs>/<scale>/run-rw-1"


@dataclass(frozen=True, order=True)
class _Labels:
    raid: str
    config: str
    fs: str

    @property
    def known(self) -> frozenset[str]:
        return frozenset((self.config, self.fs))


@dataclass(frozen=True)
class _Run:
    """A row of results.csv, a directory, or both."""

    table: Path
    """The run folder, which contains results.csv."""
    labels: _Labels
    scale: int
    mode: str
    start_epoch_s: int | None
    tps: float | None
    duration_s: float | None
    wal_bytes: int | None
    folder: Path | None


def import_pg_fs_benchmark(source: Path, out: Path, *, margin: float = 0.02) -> ImportSummary:
    """Import a folder (or .tar archive) in that layout into the new campaign directory `out`."""
    with ExitStack() as stack:
        root = source
        if source.is_file():
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pgstrata-import-")))
            _unpack(source, root)
        elif not source.is_dir():
            raise UsageError(f"there is no folder {source}", hint=_LAYOUT)
        return _import_folder(root, source.name, out, margin)


def _unpack(archive: Path, to: Path) -> None:
    try:
        limit_bytes = SMALL_BYTES + MAX_RATIO * archive.stat().st_size
        with tarfile.open(archive) as tar:
            unpacked_bytes = 0
            for count, member in enumerate(tar, 1):
                unpacked_bytes += member.size
                if count > MAX_MEMBERS or unpacked_bytes > limit_bytes:
                    raise UsageError(
                        f"{archive} would unpack to more than {limit_bytes} bytes or {MAX_MEMBERS} files",
                        hint="unpack it yourself if you trust it, and name the folder",
                    )
                tar.extract(member, to, filter="data")
    except tarfile.ReadError:
        raise UsageError(f"{archive} is neither a folder nor a whole tar archive", hint=_LAYOUT) from None
    except (tarfile.TarError, OSError) as error:
        raise UsageError(f"cannot unpack {archive}: {error}", hint=_LAYOUT) from None


def _import_folder(root: Path, name: str, out: Path, margin: float) -> ImportSummary:
    rejected: Counter[str] = Counter()
    tables = sorted(root.rglob("results.csv"))
    machines = sorted({table.parent.parent.resolve() for table in tables})
    if not tables:
        raise UsageError(f"{root}: there is no results.csv below it", hint=_LAYOUT)
    if len(machines) > 1:
        names = ", ".join(m.name for m in machines)
        raise UsageError(
            f"{root} holds several machines ({names}): runs of different hosts are not compared", hint=_LAYOUT
        )
    runs = [run for table in tables for run in _runs_of(table, rejected)]
    loads = {(table.parent, *key): load for table in tables for key, load in _loads_of(table.parent, rejected).items()}
    if not runs:
        raise UsageError(f"{root}: no results.csv below it has a row", hint=_LAYOUT)
    trials = _Trials(runs, loads, machines[0].name, rejected).build()
    notices = []
    if max((trial.block for trial in trials), default=0) == 0:
        notices.append("there is one run of each cell: single runs give no verdicts")
    if any(cell.result.open_loop for trial in trials for cell in trial.cells):
        notices.append(
            "rate-limited runs: their rate is what was achieved, to two digits, as neither pgbench nor results.csv has "
            "what was asked: limits that are closer than that share a cell, and repetitions at its edge have two"
        )
    return write_campaign(
        trials,
        out,
        name=machines[0].name if machines[0].name != root.name else name,
        origin="import pg-fs-benchmark",
        paired=False,
        goal=Goal(kind="all-pairs", margin=margin),
        rejected=rejected,
        notices=notices,
    )


# ---------------------------------------------------------------- results.csv, init.csv


def _fields(path: Path, least: int, rejected: Counter[str]) -> Iterator[list[str]]:
    for line in path.read_text(errors="replace").splitlines():
        fields = line.strip().split(";")
        if len(fields) >= least:
            yield fields
        elif line.strip():
            rejected[f"line of {path.name} with too few columns"] += 1


def _labels(middle: Sequence[str], folder: Path) -> _Labels:
    """Parse `raid[;config][;fs]`; the filesystem may appear only in the run folder's name."""
    fs = next((m for m in middle[1:] if m in FILESYSTEMS), "")
    config = next((m for m in middle[1:] if m not in FILESYSTEMS), "default")
    named = [name for name in FILESYSTEMS if name in re.split(r"[^a-z0-9]+", folder.name.lower())]
    if not fs and len(named) == 1:
        fs = named[0]
    return _Labels(middle[0], config, fs or folder.name)


def _runs_of(table: Path, rejected: Counter[str]) -> list[_Run]:
    folder = table.parent
    directories = _directories(folder)
    runs = []
    for fields in _fields(table, 8, rejected):
        try:
            scale, mode, tps, duration_s = int(fields[-5]), fields[-4], float(fields[-3]), float(fields[-2])
            start = int(float(fields[0]))
        except ValueError:
            rejected["row of results.csv with text in numbers"] += 1
            continue
        if mode not in SCRIPTS:
            rejected[f"row of results.csv with mode {mode!r}"] += 1
            continue
        if tps <= 0:
            rejected["row of results.csv without throughput"] += 1
            continue
        labels = _labels(fields[2:-5], folder)
        wal_bytes = int(fields[-1]) if fields[-1].isdigit() else None
        found = _take_directory(directories, labels, scale, mode)
        runs.append(_Run(folder, labels, scale, mode, start, tps, duration_s, wal_bytes, found))
    return runs + [_run_of_directory(folder, path) for path in sorted(directories)]


def _directories(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("run-*") if p.is_dir() and _RUN.search(p.name))


def _take_directory(directories: list[Path], labels: _Labels, scale: int, mode: str) -> Path | None:
    """Remove and return the first remaining directory whose path fits the labels."""
    for path in directories:
        raid, *others, its_scale, name = path.parts[-4:]
        if (
            name.startswith(f"run-{mode}-")
            and its_scale == str(scale)
            and raid == labels.raid
            and set(others) <= labels.known
        ):
            directories.remove(path)
            return path
    return None


def _run_of_directory(folder: Path, path: Path) -> _Run:
    match = _RUN.search(path.name)
    if match is None or not path.parent.name.isdigit():
        raise UsageError(f"{path}: its parent folder is not a scale", hint=_LAYOUT)
    middle = path.relative_to(folder).parts[:-2] or ("-",)
    labels, scale = _labels(middle, folder), int(path.parent.name)
    return _Run(folder, labels, scale, match[1], None, None, None, None, path)


def _loads_of(folder: Path, rejected: Counter[str]) -> dict[tuple[_Labels, int], LoadRecord]:
    steps: dict[tuple[_Labels, int], dict[str, float]] = {}
    path = folder / "init.csv"
    for fields in _fields(path, 7, rejected) if path.is_file() else ():
        try:
            key = (_labels(fields[2:-4], folder), int(fields[-4]))
            steps.setdefault(key, {})[fields[-3]] = float(fields[-2])
        except ValueError:
            rejected["row of init.csv with text in numbers"] += 1
    return {key: LoadRecord(how="fresh", total_s=sum(s.values()), phases_s=s) for key, s in steps.items()}


# ---------------------------------------------------------------- trials


@dataclass(frozen=True)
class _Measured:
    """A run with its pgbench output, and the measured point of the workload grid."""

    run: _Run
    summary: PgbenchResult | None
    cell: Cell
    tps: float

    @property
    def duration_s(self) -> float:
        """Requested duration; results.csv has the actual one, some seconds longer."""
        if self.summary is not None and self.summary.duration_s:
            return float(self.summary.duration_s)
        return float(round(self.run.duration_s or 0, -1))


@dataclass(frozen=True)
class _Trials:
    """Groups runs by stack, scale and number into trials; no two runs of a trial measured the same cell."""

    runs: Sequence[_Run]
    loads: Mapping[tuple[Path, _Labels, int], LoadRecord]
    machine: str
    rejected: Counter[str]

    def build(self) -> list[ImportedTrial]:
        grouped: dict[tuple[int, str, int], list[tuple[_Measured, Stack]]] = {}
        for repetitions, stack in self._repetitions(self._measured()):
            for block, one in enumerate(repetitions):
                grouped.setdefault((block, stack.name, one.run.scale), []).append((one, stack))
        return [
            ImportedTrial(
                ones[0][1],
                block,
                tuple(self._cell(one) for one, _ in ones),
                self._facts(next((one.summary.version for one, _ in ones if one.summary is not None), None)),
                next((load for one, _ in ones if (load := self._load(one.run)) is not None), None),
            )
            for (block, _, _), ones in sorted(grouped.items(), key=lambda item: item[0])
        ]

    def _load(self, run: _Run) -> LoadRecord | None:
        return self.loads.get((run.table, run.labels, run.scale))

    def _measured(self) -> list[_Measured]:
        summaries = [self._summary(run) for run in self.runs]
        clients = Counter(s.clients for s in summaries if s is not None)
        usual = clients.most_common(1)[0][0] if clients else 0
        found = []
        for run, summary in zip(self.runs, summaries, strict=True):
            tps = summary.tps if summary else run.tps
            if tps is None:
                self.rejected["run directory without any throughput"] += 1
                continue
            throttled = summary is not None and summary.lag_avg_ms is not None
            cell = Cell(
                script=SCRIPTS[run.mode],
                scale=run.scale,
                clients=summary.clients if summary else usual,
                rate_tps=float(f"{tps:.1e}") if throttled else None,
            )
            found.append(_Measured(run, summary, cell, tps))
        return found

    def _repetitions(self, measured: Sequence[_Measured]) -> Iterator[tuple[list[_Measured], Stack]]:
        """Yield groups of runs that repeat one another, with their stack.

        Runs of one label and cell are repetitions if they lasted equally long. The options of a run without pgbench's
        summary are known only within its run folder, so it repeats no run of another folder. If one cell was measured
        in several ways, the stack's name tells them apart: by the length of the run, or else by its run folder.
        """
        cells: dict[tuple[_Labels, Cell], list[_Measured]] = {}
        for one in measured:
            cells.setdefault((one.run.labels, one.cell), []).append(one)
        for (labels, _), ones in sorted(cells.items(), key=lambda item: (item[0][0], item[0][1].id)):
            unsure = len({one.run.table for one in ones}) > 1
            ways: dict[tuple[float, str], list[_Measured]] = {}
            for one in ones:
                folder = one.run.table.name if unsure and one.summary is None else ""
                ways.setdefault((one.duration_s, folder), []).append(one)
            lengths = Counter(duration_s for duration_s, _ in ways)
            for (duration_s, folder), repetitions in sorted(ways.items()):
                words = [f"{duration_s:g} s"] if len(lengths) > 1 else []
                words += [folder or "pgbench.log"] if lengths[duration_s] > 1 else []
                yield repetitions, self._stack(labels, words)

    def _facts(self, version: str | None) -> HostFacts:
        checked = {"machine": self.machine} | ({"postgres_version": version} if version else {})
        return HostFacts(name=self.machine, checked=checked, medium="imported, medium not known")

    def _stack(self, labels: _Labels, way: Sequence[str]) -> Stack:
        raids = {run.labels.raid for run in self.runs if run.labels.fs == labels.fs}
        words = [labels.fs]
        words += [f"raid{labels.raid}" if labels.raid.isdigit() else labels.raid] if len(raids) > 1 else []
        words += [labels.config] if labels.config != "default" else []
        kind = FILESYSTEMS.get(labels.fs)
        fs: Filesystem | None = kind() if kind is not None else None
        return imported_stack(" ".join([*words, *way]), fs, CONFIG_SETTINGS.get(labels.config))

    def _summary(self, run: _Run) -> PgbenchResult | None:
        if run.folder is None:
            return None
        path = run.folder / "pgbench.log"
        if not path.is_file():
            self.rejected["run without pgbench.log: figures from results.csv"] += 1
            return None
        try:
            return parse_result(path.read_text(errors="replace"))
        except PgbenchOutputError:
            self.rejected["pgbench.log that is not whole: figures from results.csv"] += 1
            return None

    def _cell(self, one: _Measured) -> ImportedCell:
        run, summary = one.run, one.summary
        series, raw = self._series(run)
        duration_s = run.duration_s or (summary.duration_s if summary else None) or 0.0
        result = imported_result(
            str(run.folder or run.table),
            cell=one.cell,
            started="" if run.start_epoch_s is None else datetime.fromtimestamp(run.start_epoch_s, UTC).isoformat(),
            duration_s=duration_s,
            transactions=summary.transactions if summary else round(one.tps * duration_s),
            tps=one.tps,
            latency_avg_ms=summary.latency_avg_ms if summary else None,
            initial_connection_ms=summary.initial_connection_ms if summary else None,
            lag_avg_ms=summary.lag_avg_ms if summary else None,
            wal_bytes=run.wal_bytes,
            checkpoints=len(series["checkpoints"]) if "checkpoints" in series else None,
            settled_samples=SETTLED_SAMPLES if "progress" in series else (0, 0),
            open_loop=one.cell.rate_tps is not None,
        )
        return ImportedCell(result, series=series, raw=raw, space=self._space(run, one.cell))

    def _series(self, run: _Run) -> tuple[dict[str, list[tuple[float | str | None, ...]]], dict[str, Path]]:
        if run.folder is None:
            return {}, {}
        raw = {path.name: path for path in sorted(run.folder.iterdir()) if path.is_file()}
        series: dict[str, list[tuple[float | str | None, ...]]] = {}
        if "stat-database.csv" in raw:
            throughput = read_throughput(raw["stat-database.csv"], self.rejected)
            series["progress"] = list(throughput.rows)
            if "stat-bgwriter.csv" in raw and throughput.start_epoch_s is not None:
                series["checkpoints"] = list(
                    read_checkpoints(raw["stat-bgwriter.csv"], throughput.start_epoch_s, self.rejected)
                )
        else:
            self.rejected["run without stat-database.csv: no throughput by second"] += 1
        return series, raw

    def _space(self, run: _Run, cell: Cell) -> SpaceRecord | None:
        path = run.folder / "sizes.csv" if run.folder else None
        if path is None or not path.is_file():
            return None
        for fields in _fields(path, 2, self.rejected):
            if fields[0] == "after" and fields[-1].isdigit():
                return SpaceRecord(moment=f"after {cell.id}", physical_bytes=None, database_bytes=int(fields[-1]))
        return None


# ---------------------------------------------------------------- series

Row = tuple[float | str | None, ...]
_UNKNOWN = (None,) * 6


@dataclass(frozen=True)
class Throughput:
    """Rows of `progress`: transactions per second between two samples, at the time of the later one."""

    start_epoch_s: float | None
    rows: tuple[Row, ...]


def read_throughput(path: Path, rejected: Counter[str]) -> Throughput:
    """Return delta xact_commit / delta epoch of the database that committed most."""
    table = _read(path, ("epoch", "datname", "xact_commit"), rejected)
    best: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None = None
    for name in dict.fromkeys(table["datname"]):
        own = table["datname"] == name
        epoch, commits = table["epoch"][own], table["xact_commit"][own]
        if epoch.size > 1 and (best is None or np.ptp(commits) > np.ptp(best[1])):
            best = epoch, commits
    if best is None:
        rejected["stat-database.csv with fewer than two samples"] += 1
        return Throughput(None, ())
    epoch, commits = best
    steps_s = np.diff(epoch)
    if (steps_s <= 0).any():
        rejected["sample of stat-database.csv that does not go forward in time"] += int((steps_s <= 0).sum())
        keep = np.concatenate([[True], steps_s > 0])
        epoch, commits = epoch[keep], commits[keep]
        steps_s = np.diff(epoch)
    tps = np.diff(commits) / steps_s
    times = epoch[1:] - epoch[0]
    return Throughput(
        float(epoch[0]), tuple((t, v, *_UNKNOWN) for t, v in zip(times.tolist(), tps.tolist(), strict=True))
    )


def read_checkpoints(path: Path, start_epoch_s: float, rejected: Counter[str]) -> Iterator[Row]:
    """Yield one row per checkpoint: start when its counter rose, end when its write time was next added.

    PostgreSQL counts a checkpoint when it starts and adds its write and sync times when it ends
    (src/backend/access/transam/xlog.c, checkpointer.c; majors up to 16).
    """
    columns = (
        "epoch", "checkpoints_timed", "checkpoints_req", "checkpoint_write_time", "checkpoint_sync_time",
        "buffers_checkpoint",
    )  # fmt: skip
    epoch, timed, requested, write_ms, sync_ms, buffers = _read(path, columns, rejected).values()
    begun = np.flatnonzero((np.diff(timed) > 0) | (np.diff(requested) > 0)) + 1
    ended = np.flatnonzero(np.diff(write_ms) > 0) + 1
    for start in begun.tolist():
        later = ended[ended > start]
        if later.size == 0:
            continue
        end = int(later[0])
        write_s = float(write_ms[end] - write_ms[end - 1]) / 1000
        sync_s = float(sync_ms[end] - sync_ms[end - 1]) / 1000
        kind = "timed" if timed[start] > timed[start - 1] else "requested"
        begin_t_s, end_t_s = float(epoch[start]) - start_epoch_s, float(epoch[end]) - start_epoch_s
        yield begin_t_s, end_t_s, kind, float(buffers[end] - buffers[start - 1]), write_s, sync_s, end_t_s - begin_t_s


def _read(path: Path, columns: Sequence[str], rejected: Counter[str]) -> dict[str, npt.NDArray[Any]]:
    """Read the named columns; lines with another number of fields (a torn last line) are omitted and counted."""
    with path.open(newline="", errors="replace") as file:
        reader = csv.reader(file, delimiter="|")
        names = next(reader, [])
        hint = "the first line names the columns, separated by |"
        try:
            places = [names.index(column) for column in columns]
        except ValueError:
            raise UsageError(f"{path}: it has not all of the columns {', '.join(columns)}", hint=hint) from None
        rows: list[list[str]] = []
        for fields in reader:
            if len(fields) != len(names):
                rejected[f"torn line of {path.name}"] += bool(fields)
            elif not all(row := [fields[place] for place in places]):
                rejected[f"line of {path.name} with an empty cell"] += 1
            else:
                rows.append(row)
    texts = zip(*rows, strict=True) if rows else [()] * len(columns)
    try:
        kinds = {column: object if column == "datname" else float for column in columns}
        return {c: np.array(t, dtype=kinds[c]) for c, t in zip(columns, texts, strict=True)}
    except ValueError as error:
        raise UsageError(f"{path}: {error}", hint=hint) from None
