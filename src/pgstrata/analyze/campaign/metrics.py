"""The metrics of a recorded run: each is one number per run, None if it was not recorded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import compress

import numpy as np

from pgstrata.analyze.campaign.selection import Selection, Tally, Traits, traits_of
from pgstrata.analyze.stats import jitter
from pgstrata.analyze.stats.capacity import is_lag_rising
from pgstrata.analyze.stats.interval import Floats
from pgstrata.analyze.stats.packed import PackedObservations
from pgstrata.analyze.stats.trend import trend_per_hour
from pgstrata.record.decision import Observation, OpenLoop
from pgstrata.record.reader import CellData, TrialData
from pgstrata.record.schema import report_interval_s

FRESH_LOADS = ("fresh", "sql", "pg_restore")
_FROM_RESULT = frozenset({"tps", "latency_avg_ms", "latency_stddev_ms", "wal_bytes"})
_FROM_SECONDS: dict[str, Callable[[Floats], float]] = {
    "cv_1s": jitter.coefficient_of_variation,
    "cv_15s": lambda tps: jitter.coefficient_of_variation(jitter.means(tps)),
    "half_fraction": lambda tps: jitter.share_below(tps, jitter.HALF),
    "stall_fraction": lambda tps: jitter.share_below(tps, jitter.STALL),
    "longest_stall_s": jitter.longest_stall_s,
    "p1_to_median": jitter.p1_to_median,
    "trend_per_hour": trend_per_hour,
}


def run_metrics(trial: TrialData, cell: CellData) -> dict[str, float | None]:
    """Return every metric of one measured run; columns of an import override computed ones."""
    seconds, interval_s = _reported(cell)
    found: dict[str, float | None] = {**_of_result(cell), **_of_trial(trial, cell)}
    if seconds.size:
        known = _known_at(interval_s, seconds)
        found |= {name: _number(statistic(seconds)) for name, statistic in _FROM_SECONDS.items() if name in known}
    found |= cell.result.extra
    return found


def _known_at(interval_s: int, seconds: Floats) -> Set[str]:
    """Return the metrics that can be computed from reports every `interval_s` seconds: the mean of a report hides
    shorter stalls."""
    if interval_s == 1:
        return _FROM_SECONDS.keys()
    known = {"trend_per_hour"}
    if jitter.MEAN_S % interval_s == 0:
        known.add("cv_15s")
    if jitter.longest_stall_s(seconds) > 0:
        known |= {"half_fraction", "stall_fraction", "longest_stall_s"}
    return known


def interval_of(cell: CellData) -> int:
    """Return the seconds between the progress reports of a run."""
    return _reported(cell)[1]


def seconds_of(cell: CellData) -> Floats:
    """Return the throughput of each second of the measured run; empty if it was not recorded."""
    return _reported(cell)[0]


def _reported(cell: CellData) -> tuple[Floats, int]:
    """Return throughput and interval from one read, which dominates the cost of judging a run."""
    whole = cell.whole
    if whole is None or not cell.has("progress"):
        return np.zeros(0), 1
    t_s, tps = cell.table("progress", ["t_s", "tps"]).values()
    first, last = whole.result.settled_samples
    if first or last:
        # Sampled by others, about once a second: samples are used unchanged, and the ends of the run were cut.
        return np.asarray(tps[first : tps.size - last]), 1
    duration_s = whole.result.duration_s or float(t_s.max(initial=0))
    interval_s = report_interval_s(t_s.tolist())
    return jitter.per_second(t_s, tps, duration_s, whole.result.transactions, interval_s), interval_s


@dataclass
class Observer:
    """Observations that the scheduler passes to its policy: the primary metric in every cell of the trials that count.

    Each trial is read once, on arrival. Only its figures and its traits are kept, and many trials share them. The
    selection is recomputed only when most trials come from another host or server than before, or what others usually
    use there has changed.
    """

    primary: str
    percentile: str = "p99"
    _tally: Tally = field(default_factory=Tally)
    _selection: Selection = field(default_factory=Selection)
    _shared: dict[Traits, Traits] = field(default_factory=dict)
    """The one object for all trials of the same traits."""
    _taken: PackedObservations = field(default_factory=PackedObservations)
    _traits: list[Traits] = field(default_factory=list)
    """Traits of each trial taken."""
    _observations: PackedObservations = field(default_factory=PackedObservations)

    def __call__(self, trials: Sequence[TrialData]) -> Sequence[Observation]:
        """Add trials; return the observations of all so far, in the order of arrival."""
        valid = [(traits_of(trial), trial) for trial in trials if trial.valid]
        self._tally.add_traits(traits for traits, _ in valid)
        begin = len(self._taken)
        for traits, trial in valid:
            self._taken.extend(_observations(trial, self.primary, self.percentile))
            shared = self._shared.setdefault(traits, traits)
            self._traits += [shared] * (len(self._taken) - len(self._traits))
        selection = self._tally.selection()
        if selection != self._selection:
            self._selection = selection
            self._observations, begin = PackedObservations(), 0
        self._observations.extend(self._counted(begin))
        return self._observations

    def _counted(self, begin: int) -> Iterator[Observation]:
        """Yield the observations that count, from this index on."""
        traits = self._traits[begin:]
        counts = {one: self._selection.counts_as(one) for one in set(traits)}
        return compress(self._taken.since(begin), map(counts.__getitem__, traits))


def _observations(trial: TrialData, primary: str, percentile: str) -> Iterator[Observation]:
    wholes = [cell.result.whole for cell in trial.cells if cell.result.whole is not None]
    own_s = trial.verdict.duration_s - sum(whole.duration_s for whole in wholes)  # not in every block
    share_s = max(0.0, own_s) / max(1, len(trial.cells))
    own = trial.trial
    for cell in trial.cells:
        value = primary_value(trial, cell, primary)
        if value is not None:
            open_loop = open_loop_of(cell, percentile)
            yield Observation(own.stack, own.block, cell.id, value, own.stage, share_s, open_loop, own.host)


def open_loop_of(cell: CellData, percentile: str) -> OpenLoop | None:
    """Return the result of an open-loop run; None for a closed loop, or if that percentile was not recorded."""
    result = cell.result
    latency_ms = result.percentiles_ms.get(percentile)
    if latency_ms is None and result.transactions == 0:
        latency_ms = math.inf  # every transaction was skipped or failed: the objective is missed, not unknown
    if cell.cell.rate_tps is None or latency_ms is None:
        return None
    scheduled = result.transactions + result.failed + result.skipped
    lag_ms = cell.table("progress", ["lag_ms"])["lag_ms"]
    return OpenLoop(
        rate_tps=cell.cell.rate_tps,
        latency_ms=latency_ms,
        failed_share=(result.failed + result.skipped + result.late) / max(scheduled, 1),
        lag_rising=is_lag_rising(lag_ms[~np.isnan(lag_ms)].tolist()),
        transactions=result.transactions,
    )


def primary_value(trial: TrialData, cell: CellData, primary: str) -> float | None:
    """Return one metric of a run; does not read the series if the result has it."""
    if primary in cell.result.extra:
        return cell.result.extra[primary]
    if primary in _FROM_RESULT:
        return _of_result(cell)[primary]
    return run_metrics(trial, cell).get(primary)


def _of_result(cell: CellData) -> dict[str, float | None]:
    result = cell.result
    found: dict[str, float | None] = {
        "tps": result.tps,
        "latency_avg_ms": result.latency_avg_ms,
        "latency_stddev_ms": result.latency_stddev_ms,
        "wal_bytes": None if result.wal_bytes is None else float(result.wal_bytes),
    }
    if result.wal_bytes is not None and result.transactions > 0:
        found["wal_bytes_per_transaction"] = result.wal_bytes / result.transactions
    lost = result.failed + result.skipped + result.late
    tried = result.transactions + result.failed + result.skipped
    if tried:
        found["failed_fraction"] = lost / tried
    found |= {f"latency_{name}_ms": value for name, value in result.percentiles_ms.items()}
    return found


def _of_trial(trial: TrialData, cell: CellData) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    if trial.load is not None and trial.load.how in FRESH_LOADS:
        found["load_s"] = trial.load.total_s
    space = trial.space_after("after load") or trial.space_after(f"after {cell.id}")
    if space is not None:
        found["space_physical_bytes"] = _count(space.physical_bytes)
        found["space_database_bytes"] = _count(space.database_bytes)
    return found


def _count(value: int | None) -> float | None:
    return None if value is None else float(value)


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
