"""Output of `go-tpc tpcc run` and `go-tpc tpch run` in files that people keep."""

from __future__ import annotations

from pathlib import Path

from pgstrata.errors import UsageError
from pgstrata.importers.tool import Importer, ToolFile
from pgstrata.workload.go_tpc_output import is_output, parse_runs

_HINT = "give the whole output of go-tpc tpcc run or go-tpc tpch run"


def _read(path: Path, text: str) -> ToolFile:
    runs = parse_runs(str(path), text)
    if not runs:
        raise UsageError(f"{path}: go-tpc printed no figures of a run", hint=_HINT)
    return ToolFile(runs, notices=("go-tpc does not report which database it ran on",))


IMPORTER = Importer("go-tpc", is_output, "go-tpc", "Output of go-tpc tpcc run or go-tpc tpch run.", _read)
