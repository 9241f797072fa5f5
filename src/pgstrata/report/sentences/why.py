"""Sentences, tables and bars on the use of session time, for terminal, page and JSON; marked up like those of
`statements`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pgstrata.analyze.crash import effective_durability
from pgstrata.analyze.finding import Cause, TimeKind
from pgstrata.analyze.findings import (
    CellFinding,
    FigureMean,
    FigurePair,
    Findings,
    StackProfile,
    TimePart,
    Why,
    WhyPart,
)
from pgstrata.analyze.why.account import MOSTLY
from pgstrata.report.sentences.figures import NOT_KNOWN, percent, render_count, render_number
from pgstrata.report.sentences.markup import quoted
from pgstrata.report.sentences.statements import uncounted_words
from pgstrata.report.tables.verdicts import Figure
from pgstrata.spec.durability import of_class
from pgstrata.spec.units import render_size

KIND_WORDS: Mapping[TimeKind, str] = {
    "wal": "writing and flushing WAL",
    "files": "reading and writing files",
    "locks": "waiting for locks",
    "running": "running without a wait",
    "client": "waiting for the client",
    "other": "other waits",
}
_CAUSES: Mapping[Cause, str] = {
    "storage": "most of it in **storage**",
    "processor": "most of it for want of **processor** time",
    "locks": "most of it in waits for **locks**",
    "client": "most of it waiting for the **client**",
    "unexplained": "**not explained** by what was recorded",
}
FIGURE_TITLES: Mapping[str, str] = {
    "flushes_per_transaction": "flushes a transaction",
    "device_bytes_per_transaction": "written to the device a transaction",
    "device_utilisation": "the busiest device in use",
    "server_cpu_wait": "server processes waiting for a processor",
    "server_cpu": "processors used by the server",
    "client_cpu": "a thread of the client on a processor",
    "client_cpu_wait": "a thread of the client waiting for one",
}
_NOT_SHOWN = "no difference in session time a transaction beyond the noise between runs"
"""Few runs with a wide scatter show no difference however large it is, so no bound is stated."""
MOST_PARTS = 2
LEAST_SHARE = 0.1
"""Parts of a difference with a smaller share appear only in the table."""
MOST_IN_TERMINAL = 3


def why_words(why: Why, profiles: Mapping[str, StackProfile]) -> str:
    """Return the sentence on a pair; `profiles` are those of the cell, by stack."""
    a = profiles[why.a]
    if not why.beyond_noise or why.cause is None:
        return f"{quoted(why.a)} against {quoted(why.b)}: {_NOT_SHOWN} is shown ({_blocks([why])})."
    told = [
        f"{quoted(why.a)} takes {_ms(why.difference_ms)} more session time a transaction than {quoted(why.b)} "
        f"({render_number(why.a_ms)} against {_ms(why.b_ms)}), {_cause(why, a)}"
    ]
    parts = [p for p in why.parts if p.beyond_noise and p.share >= LEAST_SHARE][:MOST_PARTS]
    if parts:
        told.append(", ".join(_part(p, a) for p in parts))
    if why.cause == "locks" and a.behind_locks is not None:
        told.append(f"of the sessions that waited for neither locks nor the client, most were {_kind(a.behind_locks)}")
    told += [_figures(pair) for pair in why.evidence]
    return _joined(told) + uncounted_words(why.uncounted)


def pair_sentences(whys: Sequence[Why], profiles: Mapping[str, StackProfile]) -> Iterator[str]:
    """Yield a sentence on each pair that differs; several pairs without a difference share one."""
    yield from (why_words(why, profiles) for why in whys if why.beyond_noise)
    alike = [why for why in whys if not why.beyond_noise]
    if len(alike) == 1:
        yield why_words(alike[0], profiles)
    elif alike:
        pairs = ", ".join(f"{quoted(why.a)} against {quoted(why.b)}" for why in alike)
        yield f"{_NOT_SHOWN.capitalize()} is shown ({_blocks(alike)}): {pairs}."


def _blocks(whys: Sequence[Why]) -> str:
    """Return the number of blocks with runs of both stacks, for the pair that has the fewest."""
    return render_count(min(why.pairs for why in whys), "block")


def _joined(told: list[str]) -> str:
    head, *rest = told
    return f"{head}{': ' if rest else ''}{'; '.join(rest)}."


def _cause(why: Why, a: StackProfile) -> str:
    """Return the recorded kind of most of the difference if no single kind of time is beyond the noise."""
    most = max(why.parts, key=lambda part: part.share, default=None)
    if why.cause != "unexplained" or most is None or most.share < MOSTLY or most.cause == "unexplained":
        return _CAUSES[why.cause or "unexplained"]
    amount = percent(most.share) if most.share < 1 else "all"
    event = _mostly(_of(a, most.kind))
    return (
        f"{amount} of it recorded as {KIND_WORDS[most.kind]}{f' ({event})' if event else ''}, "
        f"which is not significant on its own in {_blocks([why])}"
    )


def _part(part: WhyPart, a: StackProfile) -> str:
    return (
        f"{KIND_WORDS[part.kind]} +{_ms(part.difference_ms)} ({percent(part.a_share)} of session time against "
        f"{percent(part.b_share)}{_most(_of(a, part.kind))})"
    )


def _of(profile: StackProfile, kind: TimeKind) -> TimePart:
    return next(part for part in profile.parts if part.kind == kind)


def _kind(part: TimePart) -> str:
    event = f" ({part.events[0].name})" if part.events and part.kind != "running" else ""
    return f"{KIND_WORDS[part.kind]}{event}"


def _mostly(part: TimePart) -> str:
    """Return the wait event with the most of the time, if its name is more specific than the kind."""
    return f"mostly {part.events[0].name}" if part.events and part.kind not in ("running", "client") else ""


def _most(part: TimePart) -> str:
    event = _mostly(part)
    return f"; {event}" if event else ""


def _figures(pair: FigurePair) -> str:
    return f"{FIGURE_TITLES[pair.name]}: {render_figure(pair.name, pair.a)} against {render_figure(pair.name, pair.b)}"


def render_figure(name: str, value: float) -> str:
    """Return a figure of a profile with its unit."""
    if name.endswith("bytes_per_transaction") or name == "dirty_bytes":
        return render_size(value)
    shares = ("device_utilisation", "client_cpu", "client_cpu_wait", "cpu_busy", "cpu_iowait", "cpu_steal")
    return percent(value) if name in shares or name.startswith("pressure_") else render_number(value)


def profile_words(profile: StackProfile) -> str:
    """Describe the use of session time on one stack, the largest kinds first."""
    told = ", ".join(_shares(profile))
    return f"{quoted(profile.name)} spends {_ms(profile.time_ms)} of session time a transaction: {told}."


def _named(part: TimePart) -> str:
    if not part.events or part.kind in ("running", "client"):
        return ""
    return f" ({', '.join(event.name for event in part.events if event.share >= LEAST_SHARE / 2)})"


def profiles_of(findings: Findings, cell: CellFinding) -> dict[str, StackProfile]:
    """Return the profiles of a cell, by stack, best first."""
    found = {profile.name: profile for profile in findings.profiles if profile.cell == cell.id}
    return {name: found[name] for name in (*cell.ranking, *found) if name in found}


def whys_of(findings: Findings, cell: CellFinding) -> tuple[Why, ...]:
    """Return the comparisons of a cell, in the order of its ranking."""
    return tuple(why for why in findings.whys if why.cell == cell.id)


def reason_words(findings: Findings, cell: CellFinding, class_: str | None) -> str:
    """Return one sentence on why the best of a cell is ahead of the next one of its class that differs beyond the
    noise.

    If none is known to differ, return the use of time on the best.
    """
    profiles = profiles_of(findings, cell)
    best = cell.ranking[0] if cell.ranking else ""
    if best not in profiles:
        return ""
    classes = {s.name: effective_durability(s.durability) for s in findings.stacks if s.cell == cell.id}
    alike = [w for w in whys_of(findings, cell) if w.b == best and (class_ is None or _is_of(classes.get(w.a), class_))]
    slower = next((w for w in alike if w.beyond_noise and w.cause is not None and w.difference_ms > 0), None)
    if slower is None:
        least = ", ".join(_shares(profiles[best]))
        alike_all = bool(alike) and not any(w.beyond_noise for w in alike)
        known = f"; {_NOT_SHOWN} is shown for the others ({_blocks(alike)})" if alike_all else ""
        return f"a transaction on {quoted(best)} takes {_ms(profiles[best].time_ms)} of session time: {least}{known}."
    part = next((p for p in slower.parts if p.beyond_noise and p.share >= LEAST_SHARE), None)
    named = f", above all {_named_part(part, profiles[slower.a])}" if part is not None else ""
    return (
        f"a transaction takes {_ms(slower.b_ms)} of session time on {quoted(best)} and "
        f"{_ms(slower.a_ms)} on {quoted(slower.a)}, {_cause(slower, profiles[slower.a])}{named}."
        f"{uncounted_words(slower.uncounted)}"
    )


def _is_of(found: str | None, class_: str) -> bool:
    return found is not None and bool(of_class({"": found}, class_))


def _named_part(part: WhyPart, profile: StackProfile) -> str:
    ours = _of(profile, part.kind)
    return f"{KIND_WORDS[part.kind]} (+{_ms(part.difference_ms)}{_most(ours)})"


def _shares(profile: StackProfile) -> Iterator[str]:
    """Yield the largest kinds first."""
    for part in sorted((p for p in profile.parts if p.share >= LEAST_SHARE), key=lambda p: -p.share):
        yield f"{percent(part.share)} {KIND_WORDS[part.kind]}{_named(part)}"


def terminal_words(findings: Findings, cell: CellFinding) -> Iterator[str]:
    """Yield the use of time on the best, and the additional time of the first of the others."""
    profiles = profiles_of(findings, cell)
    if not profiles:
        return
    yield profile_words(next(iter(profiles.values())))
    explained = [why for why in whys_of(findings, cell) if why.beyond_noise]
    yield from (why_words(why, profiles) for why in explained[:MOST_IN_TERMINAL])


def _ms(value: float) -> str:
    return f"{render_number(value)} ms"


# ---------------------------------------------------------------- tables and bars of the page

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
        tables=(_times(profiles), *_figure_tables(profiles)),
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


def _figure_tables(profiles: Mapping[str, StackProfile]) -> Iterator[TimeTable]:
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
