"""Imports of all tools: files that are cut, have values of other types, or are given twice."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path

import pytest

from importing import FIXTURES, imported, imported_from
from pgstrata.errors import UsageError
from pgstrata.importers.registry import TOOLS, recognised
from pgstrata.record.reader import CampaignData

FILES = [
    ("sysbench", "sysbench/read-write.out"),
    ("hammerdb", "hammerdb/tproc-c.log"),
    ("go-tpc", "go-tpc/tpcc.out"),
    ("go-tpc", "go-tpc/tpch.out"),
    ("phoronix", "phoronix/composite.xml"),
    ("phoronix", "phoronix/export.json"),
    *(("benchbase", f"benchbase/tpcc_2024-05-02_10-11-12.{end}") for end in ("summary.json", "samples.csv", "raw.csv")),
]
"""A whole file of each tool."""
CUTS = 30


def figures(data: CampaignData) -> set[tuple[str, float]]:
    """The figures of all runs, by their names."""
    return {figure for cell in data.cells() for figure in {"tps": cell.result.tps or 0.0, **cell.result.extra}.items()}


def figures_or_hint(name: str, folder: Path, text: str) -> set[tuple[str, float]] | str:
    """The figures of a file that is imported, or the hint of its refusal."""
    try:
        return figures(imported(name, folder, {"xfs=a": text}))
    except UsageError as error:
        return error.hint


@pytest.mark.parametrize(("name", "file"), FILES)
def test_each_file_is_recognised_by_one_tool(name: str, file: str) -> None:
    text = (FIXTURES / file).read_text()
    assert [tool.name for tool in TOOLS if tool.recognises(text)] == [name]
    assert recognised(text) == name


@pytest.mark.parametrize(("name", "file"), FILES)
def test_a_file_cut_anywhere_has_no_other_figures(tmp_path: Path, name: str, file: str) -> None:
    text = (FIXTURES / file).read_text()
    whole = figures(imported(name, tmp_path / "whole", {"xfs=a": text}))
    for number in range(1, CUTS):
        with contextlib.suppress(UsageError):
            data = imported(name, tmp_path / str(number), {"xfs=a": text[: len(text) * number // CUTS]})
            # The figures of a table are of its rows, and the sum of TPC-H of its queries.
            assert file.endswith((".csv", "tpch.out")) or figures(data) <= whole


@pytest.mark.parametrize("value", [None, [], {}, "x", -1, True, 1e308])
@pytest.mark.parametrize(("name", "file"), [one for one in FILES if one[1].endswith(".json")])
def test_values_of_other_types_are_refused_or_give_whole_figures(
    tmp_path: Path, name: str, file: str, value: object
) -> None:
    whole = json.loads((FIXTURES / file).read_text())
    for position, key in enumerate(whole):
        text = json.dumps(whole | {key: value})
        found = figures_or_hint(name, tmp_path / str(position), text)
        assert found, key
        assert isinstance(found, str) or all(math.isfinite(figure) for _, figure in found), key


def test_a_file_counts_once(tmp_path: Path) -> None:
    path = FIXTURES / "hammerdb" / "tproc-c.log"
    with pytest.raises(UsageError, match=r"tproc-c\.log is read twice"):
        imported_from("hammerdb", [f"xfs={path}", f"ext4={path}"], tmp_path / "out")


def test_a_file_beside_another_counts_once(tmp_path: Path) -> None:
    base = FIXTURES / "benchbase" / "tpcc_2024-05-02_10-11-12"
    with pytest.raises(UsageError, match=r"samples\.csv is read twice"):
        imported_from("benchbase", [f"xfs={base}.samples.csv", f"xfs={base}.summary.json"], tmp_path / "out")
