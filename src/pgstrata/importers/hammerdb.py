"""Logs of HammerDB's TPROC-C driver, and the JSON of its jobs.

The text is that of `puts` in src/postgresql/pgoltp.tcl of TPC-Council/HammerDB, in hammerdb.log and on the console:
`Vuser 1:TEST RESULT : System achieved 18664 NOPM from 43386 PostgreSQL TPM`, and before 4.0 `System achieved 43386
PostgreSQL TPM at 18664 NOPM`. `jobs JOBID` prints pairs of virtual user and line, `jobs JOBID result` a list of job,
time, users and result (modules/jobs-1.0.tm). NOPM are new orders per minute; TPM are commits and rollbacks of all
databases of the server per minute. Both are of the test period, after the rampup. Neither is a throughput in
transactions a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pgstrata.errors import UsageError
from pgstrata.importers.source import Importer, ToolFile, read_json
from pgstrata.workload.tool_run import ToolRun

_I = r"(\d{1,15})"
_RESULT = re.compile(rf"TEST RESULT : System achieved (?:{_I} NOPM from {_I} (.+?) TPM|{_I} (.+?) TPM at {_I} NOPM)")
_USERS = re.compile(rf"\b{_I} (Active )?Virtual Users configured")
_RAMPUP = re.compile(rf"Beginning rampup time of {_I} minutes")
_PERIOD = re.compile(rf"Timing test period of {_I} in minutes")
_VERSION = re.compile(r"HammerDB CLI v([\w.]+)")
_SERVER = re.compile(r"DBVersion:\s*([\w.]+)")
_WAREHOUSES = re.compile(rf"Warehouses = {_I} out of {_I}")
_FAILED = re.compile(r"(?:Vuser \d+:FINISHED FAILED|Error in Virtual User \d+: .*)")
_NEXT = re.compile(r"Vuser 1:RUNNING|Hammerdb Log @|Beginning rampup")
_QUERIES = re.compile(r"Completed \d+ query set|Geometric mean of query times")
_HINT = "give hammerdb.log, or the output of: jobs JOBID result"
_TIMINGS = re.compile(r'"(?:NEWORD|neword)"\s*:\s*\{')


@dataclass
class _Run:
    """The lines of one run, as they are met."""

    line: int
    found: dict[str, re.Match[str]] = field(default_factory=dict)
    failed: str = ""

    def take(self, line: str) -> None:
        """Note what a line says."""
        for name, pattern in (
            ("result", _RESULT), ("users", _USERS), ("rampup", _RAMPUP), ("period", _PERIOD), ("version", _VERSION),
            ("server", _SERVER), ("warehouses", _WAREHOUSES),
        ):  # fmt: skip
            if name not in self.found and (found := pattern.search(line)):
                self.found[name] = found
        if found := _FAILED.search(line):
            self.failed = self.failed or found[0][:200]

    def text(self, name: str, group: int = 1) -> str:
        """Return what was found; empty if the run did not print it."""
        return self.found[name][group] if name in self.found else ""

    @property
    def begun(self) -> bool:
        """True for a run of the timed driver."""
        return "result" in self.found or "rampup" in self.found


def _read(path: Path, text: str) -> ToolFile:
    lists = list(_lists(path, text)) if text.lstrip().startswith(("[", "{")) else [text.splitlines()]
    runs = [_tool_run(path, run) for lines in lists for run in _cut(lines) if run.begun]
    if runs:
        return ToolFile(tuple(runs))
    if _QUERIES.search(text):
        raise UsageError(
            f"{path}: a TPROC-H run of HammerDB, which is not read",
            hint="write a table with one row a run: pgstrata import csv FILE --metric geomean_s",
        )
    timings = "response times without the result of their run" if _TIMINGS.search(text) else "no result of HammerDB"
    raise UsageError(f"{path}: {timings}", hint=_HINT)


def _lists(path: Path, text: str) -> Iterator[list[str]]:
    """Yield the lines of each job in the JSON that the command `jobs` prints."""
    pending: list[Any] = [read_json(path, text, "neither a log nor the JSON of a job", _HINT)]
    while pending:
        one = pending.pop(0)
        if isinstance(one, dict):
            pending = [*one.values(), *pending]
        elif isinstance(one, list) and all(isinstance(part, str) for part in one):
            users = [part for part in one[::2] if part.isdecimal()]
            pairs = len(one) > 1 and len(users) * 2 == len(one)
            yield [f"Vuser {u}:{t}" for u, t in zip(one[::2], one[1::2], strict=True)] if pairs else one
        elif isinstance(one, list):
            pending = [*one, *pending]


def _cut(lines: list[str]) -> list[_Run]:
    """Return the runs of a log; what is printed after a result, before the next run begins, belongs to it."""
    runs = [_Run(1)]
    for number, line in enumerate(lines, 1):
        last = runs[-1]
        again = (_RAMPUP.search(line) and "rampup" in last.found) or (_RESULT.search(line) and "result" in last.found)
        if again or ("result" in last.found and _NEXT.search(line)):
            runs.append(_Run(number, {"version": last.found["version"]} if "version" in last.found else {}))
        runs[-1].take(line)
    return runs


def _tool_run(path: Path, run: _Run) -> ToolRun:
    where = f"{path} (line {run.line})"
    clients = int(run.text("users") or 0)
    if clients and not run.text("users", 2):
        clients -= 1  # before 4.0 the one that watches is counted too
    if "result" not in run.found or run.failed:
        reason = run.failed or "HammerDB printed no TEST RESULT"
        return ToolRun(where, "tproc-c", clients=clients, incomplete=reason)
    new, database, old_tpm, old_database, old = run.found["result"].groups()[0], *run.found["result"].groups()[2:]
    nopm, tpm = (new, run.found["result"][2]) if new is not None else (old, old_tpm)
    if (database or old_database) != "PostgreSQL":
        raise UsageError(
            f"{where}: a run on {(database or old_database)[:40]}, not on PostgreSQL",
            hint="leave it out: only runs of PostgreSQL are compared",
        )
    minutes = int(run.text("period") or 0)
    return ToolRun(
        where,
        "tproc-c",
        {"nopm": float(nopm), "tpm": float(tpm)},
        scale=int(run.text("warehouses", 2) or 0),
        clients=clients,
        result={"duration_s": 60.0 * minutes},
        told={
            "HammerDB version": run.text("version"),
            "server version": run.text("server"),
            "duration": f"{minutes} min" if minutes else "",
            "rampup": f"{run.text('rampup')} min" if run.text("rampup") else "",
        },
    )


IMPORTER = Importer(
    "hammerdb",
    lambda text: (
        bool(_RESULT.search(text) or _RAMPUP.search(text) or _QUERIES.search(text) or _TIMINGS.search(text))
        or "Hammerdb Log @" in text
    ),
    "HammerDB",
    "Log of HammerDB, or the JSON of a job.",
    _read,
)
