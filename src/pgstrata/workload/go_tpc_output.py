"""Output of `go-tpc tpcc run` and `go-tpc tpch run`, in its styles plain, table and json.

The format is that of OutputStats in tpcc/workload.go and tpch/workload.go, and of pkg/util/output.go, of
pingcap/go-tpc. Older releases print fewer percentiles, and the first ones no line `tpmC`. tpmC are new orders in a
minute, the `TPM` of NEW_ORDER: no throughput in transactions a second. `NAME_ERR` are transactions that failed. The
histogram has one significant digit, so a mean is the sum of the latencies over their number, and percentiles are not
read. TPC-H prints the mean time of each query. A worker that an error ended prints a line without a time in front.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pgstrata.workload.tool_run import ToolRun, number, whole

_PLAIN = re.compile(r"\[(Summary|Current)\] ([A-Za-z][\w-]*)\s*(?:- |: )(.*)$")
_TPMC = re.compile(r"\btpmC: (\d+(?:\.\d+)?)(?:, tpmTotal: [\d.]+)?(?:, efficiency: (\d+(?:\.\d+)?)%)?\s*$")
_LOST = re.compile(r"^execute run failed, err (?!.*(?:context (?:deadline|canceled)|user request)).*$")
_OPTION = re.compile(r"\s(?:--(warehouses|sf|threads)|-(T))[= ](\d{1,9})\b")
_COMMAND = re.compile(r"\b(?:go-tpc|tiup bench)\s.*\brun\b")
_QUERY = re.compile(r"Q\d{1,2}$")
_CELLS = re.compile(r"\s*[|\u2502]\s*")
_ALL_QUERIES = 22
_ALLOWED = 0.01
_ROUNDED = 0.05
"""Half of the last digit of tpmC and efficiency."""
_FACTOR = 12.86
"""tpmC that a warehouse can reach in the specification; efficiency is the share of it."""


@dataclass
class _Run:
    """The summary of one run, as its lines are met."""

    line: int
    options: Mapping[str, int]
    lost: str = ""
    """The error that ended a worker before the run's end."""
    summary: dict[str, dict[str, str]] = field(default_factory=dict)

    def counts(self, *, failed: bool) -> Iterator[int]:
        """Yield the numbers of the transactions that failed, or that did not."""
        for name, row in self.summary.items():
            if name.endswith("_ERR") == failed and not _QUERY.match(name):
                yield whole(row.get("count"))

    @property
    def queries(self) -> dict[str, float | None]:
        """The mean time of each query in seconds; None for one that is cut."""
        return {name: _query_s(row) for name, row in self.summary.items() if _QUERY.match(name)}


def _query_s(row: Mapping[str, str]) -> float | None:
    if "avg(ms)" in row:
        milliseconds = number(row["avg(ms)"])
        return milliseconds / 1000 if milliseconds is not None else None
    seconds = row.get("avg(s)", "")
    return number(seconds.removesuffix("s")) if seconds.endswith("s") else None


# ---------------------------------------------------------------- lines


def _lines(text: str) -> Iterator[tuple[int, str, list[dict[str, str]]]]:
    """Yield each line with the rows of figures in it, of any style: texts by their names in small letters."""
    header: list[str] = []
    for line_number, line in enumerate(text.splitlines(), 1):
        rows: list[dict[str, str]] = []
        if found := _PLAIN.search(line):
            figures = [part.partition(": ")[::2] for part in found[3].split(", ")]
            row = {name.lower(): value for name, value in figures} if ": " in found[3] else {"avg(s)": found[3].strip()}
            rows = [{"prefix": f"[{found[1]}]", "operation": found[2], **row}]
        elif found := _TPMC.search(line):
            rows = [{"tpmc": found[1], "efficiency": found[2] or ""}]
        elif line.strip().startswith(("|", "\u2502")):
            cells = _CELLS.split(line.strip())[1:-1]
            if cells and cells[0].lower() in ("prefix", "tpmc"):
                header = [cell.lower() for cell in cells]
            elif cells and len(cells) == len(header):
                rows = [dict(zip(header, cells, strict=True))]
        elif line.strip().startswith('[{"'):
            rows = list(_json_rows(line))
        yield line_number, line, rows


def _json_rows(line: str) -> Iterator[dict[str, str]]:
    try:
        rows = json.loads(line)
    except (ValueError, RecursionError):
        return  # the line is cut: the run has no such figure
    for row in rows:
        if isinstance(row, dict):
            yield {str(name).lower(): str(value) for name, value in row.items()}


def _cut(text: str) -> list[_Run]:
    """Return the runs of a text; one that printed intermediate figures and no summary has an empty one."""
    runs: list[_Run] = []
    options: dict[str, int] = {}
    lost, pending, fresh = "", 0, True
    for line_number, line, rows in _lines(text):
        if _COMMAND.search(line):
            runs += [_Run(pending, options)] if pending else []
            options = {long or "threads": int(value) for long, _, value in _OPTION.findall(line)}
            lost, pending, fresh = "", 0, True
        elif _LOST.match(line):
            lost = lost or line[:200]
        for row in rows:
            key = "tpmC" if "tpmc" in row else row.get("operation", "").upper()
            if row.get("prefix", "[Summary]").strip() != "[Summary]":
                pending, fresh = pending or line_number, True
                continue
            if fresh or key in runs[-1].summary:
                runs.append(_Run(line_number, options, lost))
            lost, pending, fresh = "", 0, False
            runs[-1].summary[key] = row
    return [*runs, _Run(pending, options)] if pending else runs


def parse_seconds(text: str) -> Iterator[tuple[float, float, float]]:
    """Yield second, transactions a second and mean latency in ms of intermediate figures in JSON, one line a second."""
    current = (rows for _, _, rows in _lines(text) if rows and rows[0].get("prefix", "").strip() == "[Current]")
    for second, rows in enumerate(current, 1):
        done = [row for row in rows if not row["operation"].endswith("_ERR")]
        count, total_ms = (sum(number(row.get(name)) or 0.0 for row in done) for name in ("count", "sum(ms)"))
        yield float(second), sum(number(row.get("tpm")) or 0.0 for row in done) / 60, total_ms / count if count else 0.0


# ---------------------------------------------------------------- runs


def parse_runs(where: str, text: str) -> tuple[ToolRun, ...]:
    """Return the runs of an output; `where` names it in messages."""
    return tuple(_tool_run(where, run) for run in _cut(text))


def is_output(text: str) -> bool:
    """Return true if a text has figures of go-tpc."""
    return any("operation" in row or "tpmc" in row for _, _, rows in _lines(text) for row in rows)


def _tool_run(place: str, run: _Run) -> ToolRun:
    where, clients = f"{place} (line {run.line})", run.options.get("threads", 0)
    orders = run.summary.get("NEW_ORDER", {})
    script = "tpcc" if orders else "tpch"
    tpmc = number(run.summary.get("tpmC", {}).get("tpmc"))
    if tpmc is None and "STOCK_LEVEL" in run.summary and "50th(ms)" not in orders:
        tpmc = number(orders.get("tpm"))  # the first releases print no tpmC
    queries = run.queries
    fault = run.lost or ("" if run.summary else "go-tpc printed no summary")
    cut = not _same(tpmc, number(orders.get("tpm"))) if orders else None in queries.values() or not queries
    if fault or cut:
        return ToolRun(where, script, clients=clients, incomplete=fault or "the summary of go-tpc is cut")
    times = {name: seconds for name, seconds in queries.items() if seconds is not None}
    figures = {"tpmc": tpmc} if tpmc is not None else {}
    figures |= _latency(orders)
    figures |= {"total_s": sum(times.values())} if times else {}
    figures |= {f"{name.lower()}_s": seconds for name, seconds in sorted(times.items())}
    return ToolRun(
        where,
        f"{script} and queries" if orders and queries else script,
        figures,
        scale=run.options.get("warehouses" if orders else "sf", 0) or _warehouses(run, tpmc),
        clients=clients,
        result={
            "duration_s": number(orders.get("takes(s)")) or 0.0,
            "transactions": sum(run.counts(failed=False)),
            "failed": sum(run.counts(failed=True)),
        },
        traits={
            "queries": " ".join(sorted(queries)) if len(queries) < _ALL_QUERIES else "",
            "waits": "with keying and thinking times" if "KEYINGTIME-NEW_ORDER" in run.summary else "",
        },
        told={"duration": f"{orders['takes(s)']} s"} if "takes(s)" in orders else {},
    )


def _same(tpmc: float | None, tpm: float | None) -> bool:
    """True if tpmC is the TPM of new orders, which go-tpc computes a moment before; a digit that was cut is not."""
    return tpmc is not None and tpm is not None and abs(tpmc - tpm) <= max(_ALLOWED * tpm, 2 * _ROUNDED)


def _latency(orders: Mapping[str, str]) -> dict[str, float]:
    """Return the mean latency of new orders, which the histogram's rounding does not touch."""
    total_ms, count = number(orders.get("sum(ms)")), whole(orders.get("count"))
    return {"latency_new_order_ms": total_ms / count} if total_ms and count else {}


def _warehouses(run: _Run, tpmc: float | None) -> int:
    """Return the number of warehouses if tpmC and efficiency, as they are rounded, leave one; 0 otherwise."""
    share = number(run.summary.get("tpmC", {}).get("efficiency", "").rstrip("%"))
    if not tpmc or not share:
        return 0
    least = math.ceil(100 * (tpmc - _ROUNDED) / (_FACTOR * (share + _ROUNDED)))
    most = math.floor(100 * (tpmc + _ROUNDED) / (_FACTOR * max(_ROUNDED, share - _ROUNDED)))
    return least if least == most else 0
