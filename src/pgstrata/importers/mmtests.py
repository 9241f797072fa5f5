"""Result trees of mmtests, of its pgbench tests.

The layout is that of run-mmtests.sh and shellpack_src/src/pgbench/pgbench-bench of gormanm/mmtests:
`work/log/RUN/iter-N/pgbench/logs/pgbench-CLIENTS.log`, earlier `pgbench-raw-CLIENTS` and
`pgbench-RUN/noprofile/default/pgbench-raw-CLIENTS-1`, each the output of pgbench, and
`pgbench-transactions-CLIENTS.log.gz`, its aggregated log by the second. With several threads mmtests keeps the log of
one of them: such a log is not read. Each iteration is a run, and the name of a run is the stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pgstrata.errors import UsageError
from pgstrata.importers.pgbench_text import pgbench_runs
from pgstrata.importers.source import Importer, ToolFile, read_text
from pgstrata.workload.pgbench_aggregates import parse_aggregates
from pgstrata.workload.tool_run import ToolRun

_OUTPUT = re.compile(r"pgbench-(?:raw-)?(\d+(?:-\d+)?)(?:\.log)?(?:\.gz|\.xz)?")
_SECONDS = re.compile(r"pgbench-transactions-(\d+(?:-\d+)?)(?:\.log)?(?:\.gz|\.xz)?")
_ITERATION = re.compile(r"iter-\d+")
_WHOLE = 0.9
"""Least share of the transactions in a log of all threads; the seconds that are cut are some of a short run."""


def _read(folder: Path, _text: str) -> ToolFile:
    notices: list[str] = []
    outputs = sorted(path for path in folder.rglob("pgbench-*") if _OUTPUT.fullmatch(path.name) and path.is_file())
    runs = tuple(run for path in outputs for run in _runs(folder, path, notices))
    if not runs:
        raise UsageError(
            f"{folder}: no output of mmtests' pgbench (iter-0/pgbench/logs/pgbench-CLIENTS.log)",
            hint="give work/log, or the folder of a run in it; other tests of mmtests are not read",
        )
    return ToolFile(runs, notices=tuple(notices))


def _runs(folder: Path, path: Path, notices: list[str]) -> Iterator[ToolRun]:
    found = pgbench_runs(path, stack=_stack(path.relative_to(folder).parts[:-1]), traits={})
    seconds = _seconds_of(path)
    for run in found:
        if seconds is None or len(found) > 1 or run.incomplete or run.progress:
            yield run
            continue
        log = parse_aggregates([(seconds, read_text(seconds).encode())])
        if log.transactions >= _WHOLE * run.result["transactions"]:
            yield replace(run, progress=log.rows, raw=(*run.raw, seconds))
        else:
            notices.append("some logs of mmtests are of one thread of several: the seconds of these runs are not known")
            yield run


def _stack(folders: tuple[str, ...]) -> str:
    """Return the name of a run of mmtests from the folders above its output; empty if it is the folder itself."""
    for position, name in enumerate(folders):
        if _ITERATION.fullmatch(name):
            return "/".join(folders[:position])
        if name.startswith("pgbench-"):
            return name.removeprefix("pgbench-")
    return ""


def _seconds_of(output: Path) -> Path | None:
    """Return the aggregated log beside an output."""
    own = _OUTPUT.fullmatch(output.name)
    for path in sorted(output.parent.glob("pgbench-transactions-*")):
        found = _SECONDS.fullmatch(path.name)
        if own and found and own[1] in (found[1], found[1].removesuffix("-1")):
            return path
    return None


IMPORTER = Importer(
    "mmtests",
    lambda _text: False,
    "mmtests",
    "Folder work/log of mmtests, or of a run in it (pgbench).",
    _read,
    folders=True,
)
