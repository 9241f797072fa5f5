"""Results of BenchBase: `*.summary.json`, `*.samples.csv`, `*.results.csv` and `*.raw.csv`.

The formats are those of ResultWriter.java of cmu-db/benchbase. `Throughput` counts all measured requests, whatever
became of them, `Goodput` those that succeeded; both are requests in a second of the measured time, after the warm-up. A
summary without `Final State` is of a release before that field. Start times of raw.csv are seconds, whatever its header
says, and its latencies microseconds. The last window of samples and results is cut by the end of the run.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pgstrata.errors import UsageError
from pgstrata.importers.source import Importer, ToolFile, read_json, read_text
from pgstrata.workload.tool_run import Row, ToolRun, known, number, whole

_THROUGHPUT, _GOODPUT = "Throughput (requests/second)", "Goodput (requests/second)"
_RAW = (
    "Transaction Type Index,Transaction Name,Start Time (microseconds),Latency (microseconds),"
    "Worker Id (start number),Phase Id (index in config file)"
)
_WINDOWS = ("Time (seconds),Requests,Throughput", "Time (seconds),Throughput")
_NAME = re.compile(r"([a-z][\w,-]*?)_\d{4}-\d\d-\d\d_")
_ONE_KIND = re.compile(r"\.results\.[^.]+\.csv")
_HINT = "give BenchBase's summary.json of a finished run; samples.csv beside it is read with it"
_PERCENTILES = {"Median": ("p50", 0.5), "90th Percentile": ("p90", 0.9), "95th Percentile": ("p95", 0.95),
                "99th Percentile": ("p99", 0.99)}  # fmt: skip
_SMALL_LOSS = 0.02
"""Share of requests that TPC-C rolls back by design, and some more."""


def _recognises(text: str) -> bool:
    start = text.lstrip("\ufeff")
    return start.startswith((_RAW, *_WINDOWS)) or (_THROUGHPUT in text and '"Latency Distribution"' in text)


def _read(path: Path, text: str) -> ToolFile:
    text = text.lstrip("\ufeff")
    if text.startswith(_RAW):
        return _raw(path, text)
    if text.startswith(_WINDOWS):
        return _windows(path, text)
    value = read_json(path, text, "no whole summary of BenchBase", _HINT)
    found = [_summary(path, one) for one in (value if isinstance(value, list) else [value])]
    notices = ["BenchBase does not report a rate limit: if there was one, compare --metric latency_avg_ms"]
    for run in found:
        all_of_them, good = (run.figures.get(name, 0.0) for name in ("throughput_rps", "goodput_rps"))
        if "goodput_rps" in run.figures and good < (1 - _SMALL_LOSS) * all_of_them:
            notices.append(
                f"{run.where}: {100 * (1 - good / all_of_them):.0f} % of the requests did not succeed, "
                "and throughput counts them: compare --metric goodput_rps"
            )
    return ToolFile(tuple(found), notices=tuple(notices))


# ---------------------------------------------------------------- summary


def _summary(path: Path, value: Any) -> ToolRun:
    throughput = number(value.get(_THROUGHPUT)) if isinstance(value, dict) else None
    if throughput is None:
        raise UsageError(f"{path}: a summary of BenchBase without {_THROUGHPUT!r}", hint=_HINT)
    if value.get("DBMS Type") != "POSTGRES":
        raise UsageError(
            f"{path}: a run on {str(value.get('DBMS Type'))[:40]}, not on PostgreSQL",
            hint="leave it out: only runs of PostgreSQL are compared",
        )
    script, clients = str(value.get("Benchmark Type") or "benchbase"), whole(value.get("terminals"))
    if value.get("Final State") == "ERROR":
        return ToolRun(str(path), script, clients=clients, incomplete="a worker of BenchBase ended with an error")
    latency_ms = _latencies_ms(value.get("Latency Distribution"))
    goodput = number(value.get(_GOODPUT))
    elapsed_s = (number(value.get("Elapsed Time (nanoseconds)")) or 0.0) / 1e9
    beside = path.with_name(path.name.replace(".summary.json", ".samples.csv"))
    has_samples = beside != path and beside.is_file()
    return ToolRun(
        str(path),
        script,
        known(throughput_rps=throughput, goodput_rps=goodput, latency_avg_ms=latency_ms.get("Average")),
        scale=whole(value.get("scalefactor")),
        clients=clients,
        result={
            "duration_s": max(0.0, elapsed_s),
            "transactions": whole(value.get("Measured Requests")),
            "percentiles_ms": {key: latency_ms[name] for name, (key, _) in _PERCENTILES.items() if name in latency_ms},
        },
        progress=_progress(beside, read_text(beside), Counter()) if has_samples else (),
        traits={"isolation": str(value.get("isolation") or "")},
        told={
            "server version": str(value.get("DBMS Version") or "")[:80],
            "duration": f"{elapsed_s:.0f} s" if elapsed_s > 0 else "",
        },
        raw=(beside,) if has_samples else (),
    )


def _latencies_ms(distribution: Any) -> dict[str, float]:
    """Return the latencies by name; a run without a request has -1."""
    if not isinstance(distribution, dict):
        return {}
    named = {name.removesuffix(" Latency (microseconds)"): number(us) for name, us in distribution.items()}
    return {name: us / 1000 for name, us in named.items() if us is not None and us >= 0}


# ---------------------------------------------------------------- tables


def _rows(path: Path, text: str, torn: Counter[str], *, texts: Sequence[str] = ()) -> Iterator[dict[str, float]]:
    """Yield the rows of a table as numbers by column, without the columns in `texts`; UsageError for a row that is not
    understood. A last line without an end is counted in `torn`."""
    header, *lines = text.splitlines()
    names = header.split(",")
    for line_number, line in enumerate(lines, 2):
        if line_number == len(lines) + 1 and not text.endswith("\n"):
            torn["torn last line of a table"] += 1
            return
        fields = line.split(",")
        values = [(name, number(part)) for name, part in zip(names, fields, strict=False) if name not in texts]
        row = {name: value for name, value in values if value is not None}
        if len(fields) != len(names) or len(row) != len(values):
            raise UsageError(
                f"{path}: line {line_number} is not a row of {len(names)} figures: {line[:80]!r}",
                hint="give the file as BenchBase wrote it, with decimal points",
            )
        yield row


def _progress(path: Path, text: str, torn: Counter[str]) -> list[Row]:
    """Return the whole windows; the last one is cut by the end of the run."""
    *windows, last = list(_rows(path, text, torn)) or [{}]
    if not windows:
        return []
    unit = next((name for name in ("microseconds", "millisecond") if _average(name) in last), "")
    to_ms = 0.001 if unit == "microseconds" else 1.0
    window_s = (last["Time (seconds)"] - windows[0]["Time (seconds)"]) / len(windows)
    return [
        (
            row["Time (seconds)"] + window_s,
            row[_THROUGHPUT],
            row[_average(unit)] * to_ms if unit and row[_THROUGHPUT] > 0 else None,
            *(None,) * 5,
        )
        for row in windows
    ]


def _average(unit: str) -> str:
    return f"Average Latency ({unit})"


def _script(path: Path) -> str:
    found = _NAME.match(path.name)
    return found[1] if found else "benchbase"


def _windows(path: Path, text: str) -> ToolFile:
    """Return the run of samples.csv or results.csv."""
    if _ONE_KIND.search(path.name):
        raise UsageError(f"{path}: the requests of one type of transaction, not of the run", hint=_HINT)
    torn: Counter[str] = Counter()
    progress = _progress(path, text, torn)
    if not progress:
        raise UsageError(f"{path}: no whole window", hint=_HINT)
    rates = [row[1] or 0.0 for row in progress]
    latencies = [(rate, row[2]) for rate, row in zip(rates, progress, strict=True) if row[2] is not None]
    end_s = progress[-1][0] or 0.0
    mean_ms = sum(rate * ms for rate, ms in latencies) / sum(rate for rate, _ in latencies) if latencies else None
    run = ToolRun(
        str(path),
        _script(path),
        known(throughput_rps=sum(rates) / len(rates), latency_avg_ms=mean_ms),
        result={"duration_s": end_s, "transactions": round(sum(rates) / len(rates) * end_s)},
        progress=progress,
    )
    return ToolFile((run,), torn)


@dataclass
class _Phase:
    """The requests of one phase of raw.csv."""

    spans: list[tuple[float, float]] = field(default_factory=list)
    """Start in seconds and latency in milliseconds."""
    workers: set[float] = field(default_factory=set)

    def run(self, path: Path, phase: float) -> ToolRun:
        """Return the phase as a run."""
        first_s = min(start for start, _ in self.spans)
        duration_s = max(start + ms / 1000 for start, ms in self.spans) - first_s
        latencies = sorted(ms for _, ms in self.spans)
        count = len(latencies)
        seconds = Counter(int(start - first_s) for start, _ in self.spans)
        if duration_s <= 0:
            return ToolRun(str(path), _script(path), incomplete="its requests take no time")
        return ToolRun(
            f"{path} (phase {phase:.0f})",
            _script(path),
            {"throughput_rps": count / duration_s, "latency_avg_ms": sum(latencies) / count},
            clients=len(self.workers),
            result={
                "duration_s": duration_s,
                "transactions": count,
                "percentiles_ms": {key: latencies[int(share * count)] for key, share in _PERCENTILES.values()},
            },
            progress=[(s + 1.0, float(seconds[s]), *(None,) * 6) for s in range(min(int(duration_s), 10_000_000))],
            traits={"phase": f"phase {phase:.0f}"},
            told={"duration": f"{duration_s:.0f} s"},
        )


def _raw(path: Path, text: str) -> ToolFile:
    torn: Counter[str] = Counter()
    phases: dict[float, _Phase] = defaultdict(_Phase)
    for row in _rows(path, text, torn, texts=("Transaction Name",)):
        phase = phases[row["Phase Id (index in config file)"]]
        phase.spans.append((row["Start Time (microseconds)"], row["Latency (microseconds)"] / 1000))
        phase.workers.add(row["Worker Id (start number)"])
    if not phases:
        raise UsageError(f"{path}: no request was measured", hint=_HINT)
    return ToolFile(tuple(one.run(path, phase) for phase, one in sorted(phases.items())), torn)


IMPORTER = Importer(
    "benchbase",
    _recognises,
    "BenchBase",
    "Summary (JSON), samples or raw data (CSV) of BenchBase.",
    _read,
)
