"""Output of `sysbench run` with a database test in files that people keep."""

from __future__ import annotations

import re
from pathlib import Path

from pgstrata.errors import UsageError
from pgstrata.importers.tool import Importer, ToolFile
from pgstrata.workload.sysbench_output import REPORT, is_output, parse_runs

_NO_DATABASE = re.compile(r"^(?:CPU speed|File operations|Total operations|Throughput):", re.MULTILINE)


def _read(path: Path, text: str) -> ToolFile:
    if _NO_DATABASE.search(text) and not REPORT.search(text):
        raise UsageError(
            f"{path}: a test of sysbench without a database",
            hint="give the output of a database test: sysbench oltp_read_write ... run",
        )
    return ToolFile(parse_runs(str(path), text))


IMPORTER = Importer("sysbench", is_output, "sysbench", "Output of sysbench run.", _read)
