"""Every importer by its verb, and the one that recognises a file."""

from __future__ import annotations

import re
from pathlib import Path

from pgstrata.errors import UsageError
from pgstrata.importers import benchbase, hammerdb, lkp, mmtests, phoronix
from pgstrata.importers.source import Importer, Recogniser, ToolFile
from pgstrata.workload import go_tpc_output, sysbench_output

_NO_DATABASE = re.compile(r"^(?:CPU speed|File operations|Total operations|Throughput):", re.MULTILINE)


def _read_sysbench(path: Path, text: str) -> ToolFile:
    if _NO_DATABASE.search(text) and not sysbench_output.REPORT.search(text):
        raise UsageError(
            f"{path}: a test of sysbench without a database",
            hint="give the output of a database test: sysbench oltp_read_write ... run",
        )
    return ToolFile(sysbench_output.parse_runs(str(path), text))


def _read_go_tpc(path: Path, text: str) -> ToolFile:
    runs = go_tpc_output.parse_runs(str(path), text)
    if not runs:
        hint = "give the whole output of go-tpc tpcc run or go-tpc tpch run"
        raise UsageError(f"{path}: go-tpc printed no figures of a run", hint=hint)
    return ToolFile(runs, notices=("go-tpc does not report which database it ran on",))


_GO_TPC = "Output of go-tpc tpcc run or go-tpc tpch run."
TOOLS: tuple[Importer, ...] = (
    Importer("sysbench", sysbench_output.is_output, "sysbench", "Output of sysbench run.", _read_sysbench),
    hammerdb.IMPORTER,
    benchbase.IMPORTER,
    Importer("go-tpc", go_tpc_output.is_output, "go-tpc", _GO_TPC, _read_go_tpc),
    phoronix.IMPORTER,
    mmtests.IMPORTER,
    lkp.IMPORTER,
)
_OTHERS = (
    Recogniser("pgbench", lambda text: "transaction type: " in text),
    Recogniser("csv", lambda text: text.lstrip("\ufeff").lower().startswith(("stack,", "stack;", "stack\t"))),
)


def recognised(text: str) -> str:
    """Return the verb that imports a text; empty if none recognises it."""
    return next((one.name for one in (*TOOLS, *_OTHERS) if one.recognises(text)), "")


def hint_for(text: str, otherwise: str) -> str:
    """Return the import that takes a text, as a hint for a refused file."""
    name = recognised(text)
    return f"the file is of another tool: pgstrata import {name}" if name else otherwise
