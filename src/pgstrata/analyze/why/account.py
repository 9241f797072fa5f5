"""Reasons why transactions take longer on one stack than on another: session time by kind, run by run.

Session time per transaction is the sum of the kinds of `why.run`, so the difference between two stacks is the sum of
the differences by kind. Each difference is the mean over the blocks with runs of both, tested with the paired t test;
Holm (1979) shares 5 % among all tests of the cell. The total is tested by its logarithms, like TPS: runs differ by
factors, and if one stack takes several times as long, its scatter in ms hides that. Kinds can be zero and are tested in
ms. This is exploratory: the t test does not allow for repeated looks.

The cause of a kind of time that differs beyond the noise follows from the rest of the record:

    storage     sessions wait for WAL or files to be written, flushed or read: the wait itself is the evidence
    locks       sessions wait for one another
    processor   sessions wait for nothing, and at least half of that time the server's processes are known to have been
                on a processor or in the queue for one (without that record: at least 90 % of all processors are busy);
                or they are between statements, and at least half of these sessions were in that queue: a session that
                has a statement to begin, and no processor, counts as idle until it runs; or the client's threads were
                in the queue for a quarter of the time, and longer than they ran
    client      sessions wait for the client otherwise

The rest is unexplained.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pgstrata.analyze.campaign.evidence import Evidence
from pgstrata.analyze.finding import Cause, TimeKind
from pgstrata.analyze.findings import (
    CellFinding,
    EventTime,
    FigureMean,
    FigurePair,
    StackProfile,
    TimePart,
    Why,
    WhyPart,
)
from pgstrata.analyze.stats.distributions import t_cdf
from pgstrata.analyze.stats.equivalence import mean_of_differences
from pgstrata.analyze.stats.holm import holm_rejects
from pgstrata.analyze.stats.interval import ALPHA, Estimate, t_interval
from pgstrata.analyze.why.run import KINDS, RunReading, read_run

MOST_RUNS = 60
"""Maximum number of runs read for each stack and cell, the last ones: more would change no conclusion and take long."""
LEAST_PAIRS = 3
LEAST_SHARE = 0.01
"""Kinds with a smaller share of the session time on both stacks are not tested."""
MOSTLY = 0.5
ON_PROCESSORS = 0.5
BUSY = 0.9
CLIENT_WAITS = 0.25
MOST_EVENTS = 3

Readings = tuple[RunReading, ...]


def explain(evidence: Evidence, cells: Iterable[CellFinding]) -> tuple[tuple[StackProfile, ...], tuple[Why, ...]]:
    """Return the profile of every stack in these cells, and the comparison of each ranked stack with the best."""
    profiles: list[StackProfile] = []
    whys: list[Why] = []
    for cell in cells:
        read = {name: tuple(_readings(evidence, name, cell.id)) for name in evidence.stacks}
        profiles += [_profile(name, cell.id, readings) for name, readings in read.items() if readings]
        whys += compare(cell.id, [(name, read[name]) for name in cell.ranking])
    return tuple(profiles), tuple(whys)


def _readings(evidence: Evidence, stack: str, cell: str) -> Iterator[RunReading]:
    for run in evidence.whole(stack, cell)[-MOST_RUNS:]:
        reading = read_run(run.data, run.trial.stack)
        if reading is not None:
            yield reading


# ---------------------------------------------------------------- one stack


def _profile(name: str, cell: str, readings: Readings) -> StackProfile:
    time_ms = _mean(r.time_ms for r in readings)
    parts = tuple(_part(kind, readings, time_ms) for kind in KINDS)
    figures = dict.fromkeys(name for r in readings for name in r.figures)
    largest = max(parts, key=lambda part: part.ms)
    return StackProfile(
        name=name,
        cell=cell,
        runs=len(readings),
        time_ms=time_ms,
        parts=parts,
        figures={name: _figure(name, readings) for name in figures},
        mostly=_mostly(parts, readings),
        behind_locks=_behind_locks(parts) if largest.kind == "locks" else None,
    )


def _part(kind: TimeKind, readings: Readings, time_ms: float) -> TimePart:
    low, high = _bounds([r.parts[kind] for r in readings])
    ms = _mean(r.parts[kind] for r in readings)
    return TimePart(
        kind=kind,
        ms=ms,
        low=None if low is None else max(0.0, low),
        high=high,
        share=ms / time_ms,
        events=tuple(_events(kind, readings, time_ms)),
    )


def _events(kind: TimeKind, readings: Readings, time_ms: float) -> Iterator[EventTime]:
    names = dict.fromkeys(name for r in readings for own, name in r.events if own == kind)
    means = {name: _mean(r.events.get((kind, name), 0.0) for r in readings) for name in names}
    for name, ms in sorted(means.items(), key=lambda item: (-item[1], item[0]))[:MOST_EVENTS]:
        if ms > 0:
            yield EventTime(name=name, ms=ms, share=ms / time_ms)


def _figure(name: str, readings: Readings) -> FigureMean:
    known = [r.figures[name] for r in readings if name in r.figures]
    low, high = _bounds(known)
    return FigureMean(mean=_mean(known), low=low, high=high)


def _bounds(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the 95 % t interval of the mean; None for a single run."""
    return _finite(mean_of_differences(np.array(values, dtype=np.float64)))


def _mostly(parts: Sequence[TimePart], readings: Readings) -> Cause | None:
    shares: dict[Cause, float] = {}
    for part in parts:
        cause = cause_of(part.kind, readings)
        shares[cause] = shares.get(cause, 0.0) + part.share
    cause, share = max(shares.items(), key=lambda item: item[1])
    return cause if share >= MOSTLY else None


def _behind_locks(parts: Sequence[TimePart]) -> TimePart | None:
    others = [part for part in parts if part.kind not in ("locks", "client") and part.ms > 0]
    return max(others, key=lambda part: part.ms, default=None)


# ---------------------------------------------------------------- causes


def cause_of(kind: TimeKind, readings: Readings) -> Cause:
    """Return the cause of a kind of time on a stack, as far as its runs show it."""
    match kind:
        case "wal" | "files":
            return "storage"
        case "locks":
            return "locks"
        case "running":
            return "processor" if _is_on_processors(readings) else "unexplained"
        case "client":
            return "processor" if _is_held_up(readings) or _is_client_starved(readings) else "client"
    return "unexplained"


def _is_on_processors(readings: Readings) -> bool:
    used, waited = _mean_figure("server_cpu", readings), _mean_figure("server_cpu_wait", readings)
    if used is None or waited is None:
        busy = _mean_figure("cpu_busy", readings)
        return busy is not None and busy >= BUSY
    return used + waited >= ON_PROCESSORS * _sessions("running", readings)


def _is_held_up(readings: Readings) -> bool:
    """Return True if the server's running and queued processes outnumber the sessions in statements without a wait."""
    used, waited = _mean_figure("server_cpu", readings), _mean_figure("server_cpu_wait", readings)
    if used is None or waited is None:
        return False
    idle = min(used + waited - _sessions("running", readings), waited)
    return idle >= ON_PROCESSORS * _sessions("client", readings)


def _sessions(kind: TimeKind, readings: Readings) -> float:
    return _mean(r.clients * r.parts[kind] / r.time_ms for r in readings)


def _is_client_starved(readings: Readings) -> bool:
    used, waited = _mean_figure("client_cpu", readings), _mean_figure("client_cpu_wait", readings)
    return used is not None and waited is not None and waited >= max(CLIENT_WAITS, used)


def _mean_figure(name: str, readings: Readings) -> float | None:
    known = [r.figures[name] for r in readings if name in r.figures]
    return _mean(known) if known else None


# ---------------------------------------------------------------- two stacks


@dataclass(frozen=True)
class _Pair:
    """Two stacks with their runs in the common blocks; the first takes longer."""

    a: str
    b: str
    x: Readings
    y: Readings

    def difference(self, kind: TimeKind | None) -> Estimate:
        """Mean difference over the blocks, ms per transaction; of all kinds together by default."""
        pairs = zip(self.x, self.y, strict=True)
        return mean_of_differences(np.array([_time(x, kind) - _time(y, kind) for x, y in pairs]))

    def p(self, kind: TimeKind | None) -> float:
        """p of no difference. For the total it is that of the logarithms, if they agree in sign with the mean in ms."""
        if kind is not None:
            return _p(self.difference(kind))
        ratio = mean_of_differences(
            np.array([math.log(x.time_ms / y.time_ms) for x, y in zip(self.x, self.y, strict=True)])
        )
        return _p(ratio) if ratio.value >= 0 else 1.0

    def tested(self) -> tuple[TimeKind, ...]:
        return tuple(k for k in KINDS if max(_share(self.x, k), _share(self.y, k)) >= LEAST_SHARE)


def compare(cell: str, ranked: Sequence[tuple[str, Readings]]) -> Iterator[Why]:
    """Compare each stack with the first, if they have enough common blocks."""
    pairs = [pair for other in ranked[1:] if (pair := _pair(ranked[0], other)) is not None]
    tests = [(pair, kind) for pair in pairs for kind in (None, *pair.tested())]
    beyond = holm_rejects([pair.p(kind) for pair, kind in tests], ALPHA)
    found = {(pair.a, pair.b, kind): held for (pair, kind), held in zip(tests, beyond, strict=True)}
    for pair in pairs:
        yield _why(cell, pair, {kind: found[pair.a, pair.b, kind] for kind in (None, *pair.tested())}, len(tests))


def _pair(best: tuple[str, Readings], other: tuple[str, Readings]) -> _Pair | None:
    ours, theirs = ({r.block: r for r in readings} for _, readings in (best, other))
    blocks = sorted(ours.keys() & theirs.keys())
    if len(blocks) < LEAST_PAIRS:
        return None
    pair = _Pair(other[0], best[0], tuple(theirs[b] for b in blocks), tuple(ours[b] for b in blocks))
    return pair if pair.difference(None).value >= 0 else _Pair(pair.b, pair.a, pair.y, pair.x)


def _why(cell: str, pair: _Pair, beyond: Mapping[TimeKind | None, bool], tests: int) -> Why:
    whole = pair.difference(None)
    low, high = _finite(whole)
    parts = sorted((_why_part(pair, kind, whole.value, beyond[kind]) for kind in pair.tested()), key=_rank)
    cause = _cause(parts) if beyond[None] else None
    return Why(
        a=pair.a,
        b=pair.b,
        cell=cell,
        a_ms=_mean(r.time_ms for r in pair.x),
        b_ms=_mean(r.time_ms for r in pair.y),
        difference_ms=whole.value,
        low=low,
        high=high,
        p=pair.p(None),
        beyond_noise=beyond[None],
        pairs=len(pair.x),
        tests=tests,
        cause=cause,
        parts=tuple(parts),
        evidence=tuple(_evidence(pair, cause)) if cause else (),
    )


def _why_part(pair: _Pair, kind: TimeKind, whole_ms: float, beyond: bool) -> WhyPart:
    estimate = pair.difference(kind)
    low, high = _finite(estimate)
    longer = pair.x if estimate.value >= 0 else pair.y
    return WhyPart(
        kind=kind,
        cause=cause_of(kind, longer),
        difference_ms=estimate.value,
        low=low,
        high=high,
        p=pair.p(kind),
        beyond_noise=beyond,
        share=estimate.value / whole_ms if whole_ms > 0 else 0.0,
        a_share=_share(pair.x, kind),
        b_share=_share(pair.y, kind),
    )


def _rank(part: WhyPart) -> tuple[bool, float]:
    return not part.beyond_noise, -part.difference_ms


def _cause(parts: Sequence[WhyPart]) -> Cause:
    """The cause whose parts beyond the noise account for at least half of the difference."""
    shares: dict[Cause, float] = {}
    for part in parts:
        if part.beyond_noise and part.difference_ms > 0:
            shares[part.cause] = shares.get(part.cause, 0.0) + part.share
    cause, share = max(shares.items(), key=lambda item: item[1], default=("unexplained", 0.0))
    return cause if share >= MOSTLY else "unexplained"


_FIGURES: Mapping[Cause, tuple[str, ...]] = {
    "storage": ("flushes_per_transaction", "device_bytes_per_transaction", "device_utilisation"),
    "processor": ("server_cpu_wait", "server_cpu", "client_cpu_wait"),
    "client": ("client_cpu", "client_cpu_wait"),
}
"""Figures that may be reported with a cause."""


def _evidence(pair: _Pair, cause: Cause) -> Iterator[FigurePair]:
    for name in _FIGURES.get(cause, ()):
        if all(name in r.figures for r in (*pair.x, *pair.y)):
            a, b = _figure(name, pair.x), _figure(name, pair.y)
            if a.low is not None and b.low is not None and (a.low > (b.high or 0.0) or b.low > (a.high or 0.0)):
                yield FigurePair(name=name, a=a.mean, b=b.mean)


def _time(reading: RunReading, kind: TimeKind | None) -> float:
    return reading.time_ms if kind is None else reading.parts[kind]


def _share(readings: Readings, kind: TimeKind) -> float:
    return _mean(r.parts[kind] / r.time_ms for r in readings)


def _p(estimate: Estimate) -> float:
    """Two-sided p of the t test; runs with identical differences are beyond any noise."""
    if not estimate.se > 0:
        return 0.0 if estimate.value else 1.0
    return 2 * float(t_cdf(estimate.nu, -abs(estimate.value) / estimate.se))


def _finite(estimate: Estimate) -> tuple[float | None, float | None]:
    bounds = t_interval(estimate, ALPHA)
    return (bounds.low, bounds.high) if math.isfinite(bounds.low) else (None, None)


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
