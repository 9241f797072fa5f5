"""Results of the Phoronix Test Suite: `composite.xml`, and the export `result-file-to-json`.

The formats are those of pts_result_file.php and pts_result_file_output.php of phoronix-test-suite. A file has results
by test, arguments and unit (`Scale`), each with one entry for a system: its identifier is the stack. `RawString` has
the single runs, `Value` their mean. The unit is the metric, and `Proportion` says whether higher (HIB) or lower (LIB)
is better; older exports do not have it. The results of one test with the same arguments and different units (the
throughput and the mean latency of pts/pgbench) are of the same runs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from pgstrata.errors import UsageError
from pgstrata.importers.source import Importer, ToolFile, read_json
from pgstrata.workload.tool_run import ToolRun, number

_HINT = "give composite.xml of the result, or the output of: phoronix-test-suite result-file-to-json NAME"
_KNOWN: Mapping[tuple[str, str], str] = {
    ("tps", "HIB"): "tps",
    ("new orders per minute", "HIB"): "nopm",
    ("transactions per minute", "HIB"): "tpm",
    ("queries per second", "HIB"): "qps",
    ("iops", "HIB"): "iops",
    ("mb/s", "HIB"): "mb_per_s",
    ("ms", "LIB"): "time_ms",
    ("seconds", "LIB"): "time_s",
}
"""Metrics of known units; any other has the name of its unit, and the better direction at its end."""
_LATENCY = re.compile(r"\s*-\s*Average Latency$")
_ENDS = {"HIB": "higher_is_better", "LIB": "lower_is_better"}


@dataclass(frozen=True)
class _Result:
    """One result: a test with arguments and a unit."""

    test: str
    version: str
    arguments: str
    description: str
    unit: str
    proportion: str
    display: str
    entries: Sequence[tuple[str, str, Sequence[Any]]]
    """System, mean, and the values of the single runs."""

    @property
    def metric(self) -> str:
        """Name of the metric; empty if the better direction is not known."""
        if self.unit.lower() == "ms" and _LATENCY.search(self.description):
            return "latency_avg_ms"
        known = _KNOWN.get((self.unit.lower(), self.proportion))
        end = _ENDS.get(self.proportion)
        slug = re.sub(r"[^a-z0-9]+", "_", self.unit.lower().replace("/", " per ")).strip("_")
        return known or (f"{slug}_{end}" if slug and end else "")

    @property
    def script(self) -> str:
        """Name of the cell: the test and its options."""
        return " ".join(part for part in (self.test, _LATENCY.sub("", self.description)) if part)


def _recognises(text: str) -> bool:
    return "<PhoronixTestSuite" in text or (
        text.lstrip("\ufeff \r\n\t").startswith("{")
        and '"results"' in text
        and ('"all_results"' in text or '"raw_values"' in text or '"proportion"' in text)
    )


def _read(path: Path, text: str) -> ToolFile:
    found = list(_from_xml(path, text) if "<PhoronixTestSuite" in text else _from_json(path, text))
    left_out: Counter[str] = Counter()
    runs: dict[tuple[str, str, str, int], ToolRun] = {}
    for one in found:
        if reason := _unusable(one):
            left_out[f"result: {reason}"] += 1
            continue
        for system, mean, values in one.entries:
            for position, value in enumerate(values or [mean]):
                run = _tool_run(path, one, system, value)
                same = runs.setdefault((run.script, one.arguments, system, position), run)
                if same is not run and not run.figures.keys() <= same.figures.keys():
                    both = {**same.figures, **run.figures}
                    runs[run.script, one.arguments, system, position] = replace(same, figures=both)
    if not runs:
        why = f": {next(iter(left_out))}" if left_out else ""
        raise UsageError(f"{path}: no result of the Phoronix Test Suite that can be compared{why}", hint=_HINT)
    return ToolFile(tuple(runs.values()), left_out)


def _unusable(one: _Result) -> str:
    if one.display and one.display != "BAR_GRAPH":
        return f"{one.display} is no figure of a run"
    return "" if one.metric else f"whether higher or lower {one.unit or 'figures'} are better is not in the file"


def _tool_run(path: Path, one: _Result, system: str, value: Any) -> ToolRun:
    figure = number(value)
    return ToolRun(
        f"{path} ({one.test}, {system})",
        one.script,
        {one.metric: figure} if figure is not None else {},
        told={"version of the tested program": one.version},
        stack=system,
        incomplete="" if figure is not None else "the test has no figure",
    )


# ---------------------------------------------------------------- formats


def _from_xml(path: Path, text: str) -> Iterator[_Result]:
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise UsageError(f"{path}: a document type, which no result of the Phoronix Test Suite has", hint=_HINT)
    try:
        root = ElementTree.fromstring(text.lstrip("\ufeff \r\n\t"))
    except (ElementTree.ParseError, ValueError) as error:
        raise UsageError(f"{path}: no whole XML: {error}", hint=_HINT) from None
    if root.find("Benchmark") is not None:
        raise UsageError(
            f"{path}: a result in the form of old releases (Benchmark, not Result)",
            hint="save it again with a newer one",
        )
    for result in root.iter("Result"):
        values = {tag: (result.findtext(tag) or "").strip() for tag in (
            "Identifier", "AppVersion", "Arguments", "Description", "Scale", "Proportion", "DisplayFormat"
        )}  # fmt: skip
        entries = [
            (
                (entry.findtext("Identifier") or "").strip(),
                (entry.findtext("Value") or "").strip(),
                [part for part in (entry.findtext("RawString") or "").strip().split(":") if part],
            )
            for entry in result.iterfind("Data/Entry")
        ]
        yield _Result(
            values["Identifier"] or (result.findtext("Title") or "").strip(),
            values["AppVersion"],
            values["Arguments"] or _LATENCY.sub("", values["Description"]),
            values["Description"],
            values["Scale"],
            values["Proportion"],
            values["DisplayFormat"],
            entries,
        )


def _from_json(path: Path, text: str) -> Iterator[_Result]:
    value = read_json(path, text, "no whole export of the Phoronix Test Suite", _HINT)
    results = value.get("results") if isinstance(value, dict) else None
    named = results.items() if isinstance(results, dict) else [("", one) for one in results or []]
    for name, one in named:
        if not isinstance(one, dict):
            continue
        texts = {key: str(part) for key, part in one.items() if isinstance(part, (str, int, float))}
        description = texts.get("description", texts.get("arguments", "") if "units" in one else "")
        systems = one.get("results")
        yield _Result(
            texts.get("identifier") or texts.get("test") or str(name),
            texts.get("app_version", ""),
            _LATENCY.sub("", texts.get("arguments") or description),
            description,
            texts.get("scale") or texts.get("units", ""),
            texts.get("proportion", ""),
            texts.get("display_format", ""),
            [
                (str(system), str(entry.get("value", "")), _single(entry))
                for system, entry in (systems.items() if isinstance(systems, dict) else ())
                if isinstance(entry, dict)
            ],
        )


def _single(entry: Mapping[str, Any]) -> list[Any]:
    """Return the values of the single runs: a list, or a text with colons."""
    values = entry.get("raw_values", entry.get("all_results"))
    return values if isinstance(values, list) else [part for part in str(values or "").split(":") if part]


IMPORTER = Importer(
    "phoronix",
    _recognises,
    "the Phoronix Test Suite",
    "composite.xml, or the JSON export, of the Phoronix Test Suite.",
    _read,
)
