"""Result trees of lkp-tests, of its pgbench job.

The layout is that of lib/result.rb of intel/lkp-tests:
TESTCASE/PARAMETERS/MACHINE/ROOTFS/KCONFIG/COMPILER/COMMIT/RUN. A run has the output of pgbench (`pgbench`, perhaps
compressed), `pgbench.json` with what stats/pgbench took from it, and `stats.json` with one value for each;
`matrix.json` of a commit has a column for each run. `tps` includes the time to connect, `tps_exclude_connect` does not,
as pgbench's own throughput. The stack is named by the axes in which runs differ; parameters make runs different
measurements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pgstrata.errors import UsageError
from pgstrata.importers.pgbench_text import pgbench_runs
from pgstrata.importers.source import Importer, ToolFile, read_json, read_text
from pgstrata.workload.tool_run import ToolRun, known, number, whole

_AXES = ("testcase", "parameters", "machine", "rootfs", "kconfig", "compiler", "commit")
_STACK = _AXES[2:]
_OUTPUTS = ("pgbench", "pgbench.gz", "pgbench.xz")
_STATS = ("stats.json", "pgbench.json", "pgbench.json.gz")
_HINT = "give a folder /result/pgbench of lkp-tests, or one in it; other tests of lkp-tests are not read"


def _read(folder: Path, _text: str) -> ToolFile:
    top = folder.resolve()
    left_out: Counter[str] = Counter()
    found: list[tuple[dict[str, str], ToolRun]] = []
    for place in _places(top):
        axes = dict(zip(_AXES, place.parts[-len(_AXES) - 1 : -1], strict=False))
        if place.name == "matrix.json":
            axes = dict(zip(_AXES, place.parent.parts[-len(_AXES) :], strict=False))
        if len(axes) != len(_AXES) or axes["testcase"] != "pgbench":
            left_out["run of lkp-tests that is no pgbench job in lkp's layout"] += 1
            continue
        own = _matrix(place, axes) if place.name == "matrix.json" else _run(place, axes)
        found += [(axes, run) for run in own]
    if not found:
        raise UsageError(f"{folder}: no pgbench run of lkp-tests ({'/'.join(_AXES).upper()}/RUN)", hint=_HINT)
    differing = [axis for axis in _STACK if len({axes[axis] for axes, _ in found}) > 1]
    return ToolFile(
        tuple(replace(run, stack=" ".join(axes[axis] for axis in differing)) for axes, run in found), left_out
    )


def _places(top: Path) -> Iterator[Path]:
    """Yield the folders of runs, and each matrix of a commit whose runs are not there."""
    runs = sorted({path.parent for name in (*_OUTPUTS, *_STATS) for path in top.rglob(name) if path.is_file()})
    runs = [run for run in runs if run.name.isdigit()]
    yield from runs
    have = {run.parent for run in runs}
    for path in sorted(top.rglob("matrix.json")):
        if path.parent not in have and path.parent.parts[-len(_AXES) :][0] == "pgbench":
            yield path


def _run(folder: Path, axes: Mapping[str, str]) -> list[ToolRun]:
    source = next((folder / name for name in _STATS if (folder / name).is_file()), None)
    stats = _json(source) if source is not None else {}
    state = folder / "last_state"
    if state.is_file() and "is_incomplete_run: 1" in read_text(state):
        stats = {**stats, "last_state.is_incomplete_run": 1}
    output = next((folder / name for name in _OUTPUTS if (folder / name).is_file()), None)
    if output is None or _incomplete(stats):
        return [_from_stats(str(folder), stats, axes, source)]
    return pgbench_runs(output, stack="", traits={"parameters": axes["parameters"]})


def _json(path: Path) -> dict[str, Any]:
    value = read_json(path, read_text(path), "no whole statistics of lkp-tests", _HINT)
    if not isinstance(value, dict):
        raise UsageError(f"{path}: no statistics of lkp-tests", hint=_HINT)
    return value


def _matrix(path: Path, axes: Mapping[str, str]) -> list[ToolRun]:
    """Return the columns of a matrix; missing values are 0 there, or the column is short."""
    value = _json(path)
    sources = value.get("stats_source")
    columns = range(len(sources)) if isinstance(sources, list) else range(0)
    return [
        _from_stats(
            f"{path} (column {column + 1})",
            {name: row[column] for name, row in value.items() if isinstance(row, list) and column < len(row)},
            axes,
            path,
        )
        for column in columns
    ]


def _incomplete(stats: Mapping[str, Any]) -> bool:
    return bool(_value(stats, "last_state.is_incomplete_run"))


def _value(stats: Mapping[str, Any], name: str) -> float | None:
    """Return a value, which pgbench.json has as a list of one."""
    found = stats.get(name)
    return number(found[0] if isinstance(found, list) and len(found) == 1 else found)


def _from_stats(where: str, stats: Mapping[str, Any], axes: Mapping[str, str], source: Path | None) -> ToolRun:
    if _incomplete(stats):
        return ToolRun(where, "pgbench", incomplete="lkp-tests calls the run incomplete")
    without = _value(stats, "pgbench.tps_exclude_connect")
    tps = without or _value(stats, "pgbench.tps")
    latency_ms = _value(stats, "pgbench.latency_ms")
    return ToolRun(
        where,
        "pgbench",
        known(tps=tps, latency_avg_ms=latency_ms or None),
        result={"transactions": whole(_value(stats, "pgbench.transactions"))},
        traits={
            "parameters": axes["parameters"],
            "throughput": "" if without else "throughput with the time to connect",
        },
        raw=(source,) if source is not None else (),
        incomplete="" if tps is not None else "lkp-tests has no throughput of it",
    )


IMPORTER = Importer(
    "lkp",
    lambda _text: False,
    "lkp-tests",
    "Folder /result/pgbench of lkp-tests, or one in it.",
    _read,
    folders=True,
)
