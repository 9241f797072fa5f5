"""The interface of a load: what data it needs, how it is loaded, run and read, and what must be installed.

A driver is registered as a layer is. The requested half is a model of `spec.drivers.kind.Driver`, with a `kind` and the
keys that a campaign can set. The other half is a `LoadDriver` with that model. One of the package has a module in
`spec/drivers` and one here, and a line in their registry and in `_own`. One from outside has both in one file and calls

    from pgstrata.workload.driver import register
    register(MyDriver())

before the campaign is read; `tests/unit/workload/test_outside_driver.py` holds a complete one. Then
`workload: {driver: my-kind}` or `workload: {driver: {kind: my-kind, ...}}` uses it, and nothing else needs a change.

Flow of data: `plan_load` fills an empty database, once for each golden copy. `plan_check` asks if the data meets its
conditions, after the load and after each run. `plan_run` is one command; `parse_run` makes its output and logs a
`ToolRun`, whose figures are the record of the run.
Everything here is pure: `trial.steps` runs the commands.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from pgstrata.errors import PreflightError
from pgstrata.host.capabilities import Capability
from pgstrata.host.protocol import Command, Completed
from pgstrata.spec.drivers import Driver
from pgstrata.spec.workload import Cell, Workload
from pgstrata.workload.target import Target
from pgstrata.workload.tool_run import Row, ToolRun

END_GRACE_S, END_GRACE_SHARE, LONGEST_END_GRACE_S = 30.0, 0.1, 120.0
"""A run may last 30 s and a tenth of its duration longer, at most 120 s, to end its last transactions."""
LONGEST_RUN_S = 24 * 3600.0
"""Limit of a run that is bounded by transactions: the trial's own limit applies."""


@dataclass(frozen=True)
class DataRequest:
    """The data of a trial that is to be loaded."""

    target: Target
    workload: Workload
    scale: int
    tablespace: str | None = None
    """The tablespace of the data, in a stack that has it."""


@dataclass(frozen=True)
class RunRequest:
    """One run of a cell."""

    target: Target
    workload: Workload
    cell: Cell
    seed: int
    duration_s: float | None
    """None for a run that `workload.transactions` bounds."""
    folder: str
    """On the host: the driver's user may write there, and it is removed after the run."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Paths on the host of what `LoadDriver.files` names, by their paths on this machine."""
    logged: bool = False
    """True if single transactions are to be logged, below `folder`."""


@dataclass(frozen=True)
class RunOutput:
    """Standard output and error of one run, and its logs, as fetched."""

    out: str
    err: str
    logs: Sequence[Path] = ()
    workload: Workload = field(default_factory=Workload)
    asked_s: float | None = None
    """Configured length; None for a run that `workload.transactions` bounds."""


@dataclass(frozen=True)
class LoadTimes:
    """Seconds that loading took by the driver's own account, and its phases by name; None if it has none."""

    total_s: float | None = None
    phases_s: Mapping[str, float] = field(default_factory=dict)


class LoadDriver(ABC):
    """Preparation, run and reading of a load. Methods are pure; a driver has no state between runs."""

    model: ClassVar[type[Driver]]
    """The requested half."""
    load_phases: ClassVar[tuple[str, ...]] = ()
    """Names of the commands of `plan_load`."""

    @property
    def name(self) -> str:
        """The name in campaigns and in names of files."""
        return self.model.name()

    def capabilities(self, workload: Workload) -> tuple[Capability, ...]:
        """Return what a host must have: programs, and packages that bring them."""
        return ()

    def refusals(self, workload: Workload, major: int) -> Iterator[PreflightError]:
        """Yield what client programs of that major cannot do for a workload."""
        yield from ()

    @abstractmethod
    def plan_load(self, request: DataRequest) -> tuple[Command, ...]:
        """Return the commands that fill an empty database."""

    def parse_load(self, done: Sequence[Completed]) -> LoadTimes:
        """Return the times of loading. PgstrataError if the data is not complete."""
        return LoadTimes(phases_s=dict(zip(self.load_phases, (one.duration_s for one in done), strict=True)))

    def plan_check(self, request: DataRequest, *, fresh: bool) -> tuple[Command, ...]:
        """Return the commands that check the data, after it was loaded (`fresh`) and after each run."""
        return ()

    def broken_conditions(self, done: Sequence[Completed]) -> Sequence[str]:
        """Return the conditions that the data does not meet, by the outputs of `plan_check`."""
        return ()

    @property
    def state_conditions(self) -> str:
        """A query for conditions of the data and the number of rows that break each (`condition`, `broken`), which is
        asked in each state after a power cut; empty if it has none."""
        return ""

    def files(self, workload: Workload, cell: Cell) -> Mapping[str, str]:
        """Return the files that a run needs on the host: paths on this machine, and names there."""
        return {}

    @abstractmethod
    def plan_run(self, request: RunRequest) -> Command:
        """Return one run. PreflightError for what the installed program cannot do."""

    def log_names(self, workload: Workload, cell: Cell, pid: int) -> Sequence[str]:
        """Return the names of the logs that a run with that pid leaves below its folder."""
        return ()

    def most_log_bytes(self, workload: Workload, cell: Cell, duration_s: float | None) -> int:
        """Return the maximum size of all logs of a run."""
        return 0

    @abstractmethod
    def parse_run(self, output: RunOutput, cell: Cell) -> ToolRun:
        """Return the figures of a run by the driver's own names: `tps` and latencies as fields of a result, any other
        as it is called. PgstrataError for output that is not understood."""

    def parse_seconds(self, text: str) -> Sequence[Row]:
        """Return the seconds (t_s, tps, latency_ms, ...) in a part of the progress that a run in progress printed."""
        return ()


DRIVERS: dict[str, LoadDriver] = {}
"""Drivers from outside the package, by the name of their model."""


def register(driver: LoadDriver) -> None:
    """Register a driver from outside the package with its model."""
    Driver.register(driver.model)
    DRIVERS[driver.name] = driver


def driver_of(workload: Workload) -> LoadDriver:
    """Return the driver of a workload."""
    kind = workload.driver.kind
    return DRIVERS.get(kind) or _own()[kind]


@cache
def _own() -> dict[str, LoadDriver]:
    """Return every driver of the package by its name: a new one is a module and a line here."""
    # They import this module.
    from pgstrata.workload.go_tpc_driver import GoTpcDriver
    from pgstrata.workload.pgbench import PgbenchDriver
    from pgstrata.workload.program_driver import ProgramDriver
    from pgstrata.workload.replay_driver import ReplayDriver
    from pgstrata.workload.sysbench_driver import SysbenchDriver
    from pgstrata.workload.tpcc_driver import TpccDriver

    own = (PgbenchDriver(), TpccDriver(), GoTpcDriver(), SysbenchDriver(), ProgramDriver(), ReplayDriver())
    return {driver.name: driver for driver in own}


def run_timeout_s(duration_s: float | None, clients: int) -> float:
    """Return the time after which a run of that length is stopped, with some for each connection."""
    if duration_s is None:
        return LONGEST_RUN_S
    grace_s = min(END_GRACE_S + END_GRACE_SHARE * duration_s, LONGEST_END_GRACE_S)
    return duration_s + grace_s + 0.1 * clients


def summed(runs: Sequence[ToolRun]) -> ToolRun:
    """Return one run of the turns of a stack: counts are added, means weighted by transactions, and the last turn has
    the percentiles of all. Pure."""
    results = [run.result for run in runs]
    counts = [result["transactions"] for result in results]
    transactions, seconds = sum(counts), sum(measured_s(run) for run in runs)
    by_script: dict[str, list[Mapping[str, Any]]] = {}
    for script in (script for result in results for script in result.get("scripts", ())):
        by_script.setdefault(script["name"], []).append(script)
    return ToolRun(
        runs[0].where,
        runs[0].script,
        {
            "tps": transactions / seconds if seconds else 0.0,
            "latency_avg_ms": _mean([run.figures.get("latency_avg_ms") for run in runs], counts),
        },
        result={
            **{name: sum(result.get(name) or 0 for result in results) for name in _ADDED},
            "percentiles_ms": results[-1].get("percentiles_ms", {}),
            "initial_connection_ms": results[0].get("initial_connection_ms"),
            "scripts": [_summed_script(turns, seconds) for turns in by_script.values()],
        },
        messages=[line for run in runs for line in run.messages],
    )


_ADDED = ("duration_s", "transactions", "failed", "retried", "skipped", "late")


def _summed_script(turns: Sequence[Mapping[str, Any]], seconds: float) -> dict[str, Any]:
    counts = [one["transactions"] for one in turns]
    return {
        **turns[-1],
        **{name: sum(one.get(name) or 0 for one in turns) for name in ("transactions", "failed", "skipped")},
        "tps": sum(counts) / seconds if seconds else 0.0,
        "latency_avg_ms": _mean([one["latency_avg_ms"] for one in turns], counts),
        "latency_stddev_ms": None,
    }


def _mean(values: Sequence[float | None], counts: Sequence[int]) -> float:
    return sum((value or 0.0) * count for value, count in zip(values, counts, strict=True)) / max(1, sum(counts))


def measured_s(run: ToolRun) -> float:
    """Return the time that the throughput refers to: without connecting."""
    tps = run.figures.get("tps")
    return float(run.result["transactions"] / tps if tps else run.result["duration_s"])
