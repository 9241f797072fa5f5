"""Session time and figures per transaction as tables of the page, and as bars next to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pgstrata.analyze.findings import CellFinding, FigureMean, Findings, StackProfile
from pgstrata.report.sentences.figures import NOT_KNOWN, percent, render_number
from pgstrata.report.sentences.why import KIND_WORDS, pair_sentences, profiles_of, render_figure, whys_of
from pgstrata.report.tables.verdicts import Figure

PER_TRANSACTION: Mapping[str, str] = {
    "wal_bytes_per_transaction": "WAL",
    "filesystem_bytes_per_transaction": "Filesystem writes",
    "device_bytes_per_transaction": "Device writes",
    "filesystem_over_wal": "Filesystem over WAL",
    "device_over_filesystem": "Device over filesystem",
    "wal_syncs_per_transaction": "Syncs of WAL",
    "flushes_per_transaction": "Flushes of devices",
}
IN_USE: Mapping[str, str] = {
    "device_utilisation": "Busiest device in use",
    "device_queue": "Its queue",
    "cpu_busy": "Processors busy",
    "cpu_iowait": "I/O wait",
    "cpu_steal": "Stolen",
    "server_cpu": "Processors the server used",
    "server_cpu_wait": "Server processes waiting for one",
    "client_cpu": "Thread of the client running",
    "client_cpu_wait": "Thread of the client waiting",
    "dirty_bytes": "Dirty memory",
}


@dataclass(frozen=True)
class TimeRow:
    """One stack: figures in the order of the titles of its table."""

    name: str
    whole: str
    cells: tuple[Figure, ...]


@dataclass(frozen=True)
class TimeTable:
    """Titles of the columns after the stack, and a row per stack, best first."""

    caption: str
    titles: tuple[str, ...]
    rows: tuple[TimeRow, ...]


@dataclass(frozen=True)
class TimeView:
    """Contents of the page for one cell: sentences on pairs, and tables."""

    sentences: tuple[str, ...]
    tables: tuple[TimeTable, ...]


@dataclass(frozen=True)
class DrawnTime:
    """Session time per transaction of one stack in one cell, ms, by kind."""

    stack: int
    cell: int
    runs: int
    time_ms: float
    parts_ms: dict[str, float]


def time_view(findings: Findings, cell: CellFinding) -> TimeView | None:
    """Return the view; None if no session was recorded."""
    profiles = profiles_of(findings, cell)
    if not profiles:
        return None
    return TimeView(
        sentences=tuple(pair_sentences(whys_of(findings, cell), profiles)),
        tables=(_times(profiles), *_figures(profiles)),
    )


def _times(profiles: Mapping[str, StackProfile]) -> TimeTable:
    rows = (
        TimeRow(
            name,
            f"{render_number(profile.time_ms)} ms",
            tuple(Figure(f"{render_number(part.ms)} ms", percent(part.share)) for part in profile.parts),
        )
        for name, profile in profiles.items()
    )
    titles = ("All", *(words.capitalize().replace("wal", "WAL") for words in KIND_WORDS.values()))
    return TimeTable("Session time a transaction, and its share", titles, tuple(rows))


def _figures(profiles: Mapping[str, StackProfile]) -> Iterator[TimeTable]:
    """Yield a table for each group with at least one recorded figure."""
    for caption, group in (("Each transaction", PER_TRANSACTION), ("In use meanwhile", IN_USE)):
        known = {name: title for name, title in group.items() if any(name in p.figures for p in profiles.values())}
        if known:
            rows = (
                TimeRow(name, "", tuple(_cell(figure, p.figures.get(figure)) for figure in known))
                for name, p in profiles.items()
            )
            yield TimeTable(f"{caption}: means of the runs with 95 % intervals", tuple(known.values()), tuple(rows))


def _cell(name: str, found: FigureMean | None) -> Figure:
    if found is None:
        return Figure(NOT_KNOWN, "")
    interval = ""
    if found.low is not None and found.high is not None:
        interval = f"{render_figure(name, max(0.0, found.low))} … {render_figure(name, found.high)}"
    return Figure(render_figure(name, found.mean), interval)


def drawn_times(findings: Findings, names: list[str], cells: Mapping[str, int]) -> list[DrawnTime]:
    """Return the bars, in the order of the findings."""
    return [
        DrawnTime(
            stack=names.index(profile.name),
            cell=cells[profile.cell],
            runs=profile.runs,
            time_ms=float(f"{profile.time_ms:.6g}"),
            parts_ms={KIND_WORDS[part.kind]: float(f"{part.ms:.6g}") for part in profile.parts},
        )
        for profile in findings.profiles
    ]
