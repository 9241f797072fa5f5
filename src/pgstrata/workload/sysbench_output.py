"""Output of `sysbench run` with a database test, with or without `--report-interval`.

The format is that of `db_report_cumulative` and `db_report_intermediate` in src/db_driver.c of akopytov/sysbench (1.0,
1.1), and of its 0.4 and 0.5 releases; tests/t/opt_report_interval.t, opt_report_checkpoints.t and opt_warmup_time.t
show it. `ignored errors` are events that were started again, so they count as retried. A checkpoint report resets all
counters: the final report is of the time after the last one. The mean latency of an interval is not printed. The script
is known only if the command stands in the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pgstrata.workload.tool_run import ToolRun, known

_N = r"(\d{1,15}(?:\.\d{1,15})?)"
_I = r"(\d{1,15})"
_VERSION = re.compile(r"\bsysbench (\d[\w.-]*)(?= \(|:)")
_COMMAND = re.compile(r"\bsysbench\b.*\s([\w./-]*(?:oltp|select_random|bulk_insert|tpcc)[\w-]*)(?:\.lua)?\b.*\brun\b")
_START = "Running the test with following options"
_PROGRESS = re.compile(rf"\[\s*{_I}s\s*\] (?:thds|threads): \d+,? tps: {_N}")
_CHECKPOINT = re.compile(rf"\[\s*{_I}s\s*\] Checkpoint report")
REPORT = re.compile(r"(?:SQL|OLTP test) statistics:")
_FATAL = re.compile(r"FATAL: .*")
_FIELDS: dict[str, re.Pattern[str]] = {
    "threads": re.compile(rf"Number of threads: {_I}"),
    "rate": re.compile(rf"Target transaction rate: {_I}/sec"),
    "warmup": re.compile(rf"Warmup time: {_I}"),
    "read": re.compile(rf"\bread:\s+{_I}"),
    "write": re.compile(rf"\bwrite:\s+{_I}"),
    "queries": re.compile(rf"\btotal:\s+{_I}"),
    "transactions": re.compile(rf"\btransactions:\s+{_I}\s+\({_N} per sec\.\)"),
    "errors": re.compile(rf"\b(?:ignored errors|deadlocks):\s+{_I}"),
    "total_s": re.compile(rf"\b(?:total time|time elapsed):\s+{_N}s"),
    "average": re.compile(rf"\bavg:\s+{_N}(ms|s|us)?\s*$"),
    "percentile": re.compile(rf"\b(\d{{1,2}})(?:st|nd|rd|th)? percentile:\s+{_N}(ms|s|us)?\s*$"),
}
_UNIT = re.compile(r"\bLatency \((ms|s|us)\):")
_TO_MS = {"ms": 1.0, "s": 1000.0, "us": 0.001}


@dataclass
class _Run:
    """The lines of one run, as they are met."""

    line: int
    version: str = ""
    script: str = "sysbench"
    found: dict[str, re.Match[str]] = field(default_factory=dict)
    progress: list[tuple[float, float]] = field(default_factory=list)
    checkpoint_s: float = 0.0
    unit: str | None = None
    reported: bool = False
    fatal: str = ""
    _checkpoint_follows: bool = False
    _within_checkpoint: bool = False

    def take(self, line: str) -> None:
        """Note the figures of a line, but for those of a checkpoint report."""
        if found := _CHECKPOINT.search(line):
            self.checkpoint_s, self._checkpoint_follows = float(found[1]), True
        elif found := _PROGRESS.search(line):
            self.progress.append((float(found[1]), float(found[2])))
        elif REPORT.search(line):
            self._within_checkpoint, self._checkpoint_follows = self._checkpoint_follows, False
            self.reported = not self._within_checkpoint
        elif found := _FATAL.search(line):
            self.fatal = self.fatal or found[0][:200]
        elif not self._within_checkpoint:
            self.unit = unit[1] if (unit := _UNIT.search(line)) else self.unit
            for name, pattern in _FIELDS.items():
                if name not in self.found and (found := pattern.search(line)):
                    self.found[name] = found

    def number(self, name: str) -> float:
        """Return a figure; 0 if it was not printed."""
        return float(self.found[name][1]) if name in self.found else 0.0

    def milliseconds(self, name: str, group: int) -> float | None:
        """Return a latency; None if it, or its unit, was not printed."""
        found = self.found.get(name)
        unit = found and (found[group + 1] or self.unit)
        return float(found[group]) * _TO_MS[unit] if found and unit else None


def parse_runs(where: str, text: str) -> tuple[ToolRun, ...]:
    """Return the runs of an output; `where` names it in messages."""
    return tuple(_tool_run(where, run) for run in _cut(text))


def is_output(text: str) -> bool:
    """Return true if a text has a run of a database test."""
    return (_START in text and "Number of threads" in text) or bool(REPORT.search(text))


def _cut(text: str) -> list[_Run]:
    """Return the runs of a text; the version and the command before a run belong to it."""
    runs: list[_Run] = []
    version, script = "", "sysbench"
    for number, line in enumerate(text.splitlines(), 1):
        if found := _VERSION.search(line):
            version = found[1]
        if found := _COMMAND.search(line):
            script = found[1].rsplit("/", 1)[-1]
        header = _START in line
        if header or (REPORT.search(line) and (not runs or runs[-1].reported)):
            runs.append(_Run(number, version, script))
            version, script = "", "sysbench"
        if runs:
            runs[-1].take(line)
    return runs


def _tool_run(place: str, run: _Run) -> ToolRun:
    where, threads = f"{place} (line {run.line})", int(run.number("threads"))
    missing = [name for name in ("transactions", "total_s") if name not in run.found]
    if missing or run.fatal:
        cut = "sysbench printed no final report" if not run.reported else "the final report of sysbench is cut"
        return ToolRun(where, run.script, clients=threads, incomplete=run.fatal or cut)
    transactions = run.found["transactions"]
    count = int(transactions[1])
    average, percentile = run.milliseconds("average", 1), run.milliseconds("percentile", 2)
    percentiles = {f"p{run.found['percentile'][1]}": percentile} if percentile is not None else {}
    return ToolRun(
        where,
        run.script,
        known(tps=float(transactions[2]), latency_avg_ms=average),
        clients=threads,
        rate_tps=run.number("rate") or None,
        result={
            "duration_s": max(0.0, run.number("total_s") - run.checkpoint_s),
            "transactions": count,
            "retried": int(run.number("errors")),
            "percentiles_ms": percentiles,
        },
        progress=[(t_s - run.checkpoint_s, tps, *(None,) * 6) for t_s, tps in run.progress if t_s > run.checkpoint_s],
        traits={"queries": _queries(run, count)},
        told={
            "sysbench version": run.version,
            "duration": f"{run.number('total_s') - run.checkpoint_s:.0f} s",
            "warm-up": f"{run.number('warmup'):.0f} s" if run.number("warmup") else "",
        },
    )


def _queries(run: _Run, transactions: int) -> str:
    """Return the kind of queries, and their number in a transaction; the script's name is unknown."""
    kind = "read-only" if not run.number("write") else "read-write" if run.number("read") else "write-only"
    return f"{kind}, {run.number('queries') / max(1, transactions):.0f} queries"
