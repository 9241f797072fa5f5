"""What is said of a cell is a handful; what is common is said once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.campaign.statements import (
    Choice,
    LevelChanges,
    NotConfirmed,
    NoVerdict,
    PairStatement,
    Period,
    Stalls,
    Statement,
)
from pgstrata.analyze.findings import CellFinding
from pgstrata.errors import UsageError
from pgstrata.importers.csv_runs import import_csv
from pgstrata.record.reader import read
from pgstrata.report.markdown import render_markdown
from pgstrata.report.sentences.summary import MOST_SENTENCES, cell_words, common_sentences, told
from pgstrata.report.terminal import render_terminal

SINGLE = NoVerdict(reason="single runs")
LEADS = Choice(subject="a", relation="leads", metric="tps", margin=0.02)


def cell(*statements: Statement) -> CellFinding:
    given: dict[str, Any] = {"id": "c", "script": "s", "scale": 1, "clients": 1, "ranking": (), "chosen": None}
    return CellFinding.model_validate({**given, "statements": statements})


def open_pair(a: str, b: str) -> PairStatement:
    return PairStatement(subject=a, relation="undecided", object=b, metric="tps", amount=0.9, low=None, high=None,
                         certainty="open", source="import", margin=0.02)  # fmt: skip


def test_stacks_that_share_a_remark_share_its_sentence() -> None:
    names = [f"s{i:02d}" for i in range(20)]
    stalls = [
        Stalls(subject=n, half_fraction=0.0, stall_fraction=0.01 * i, longest_stall_s=1.0) for i, n in enumerate(names)
    ]
    periods = [Period(subject=n, period_s=60.0, swing=0.2) for n in names[:2]]
    levels = LevelChanges(subject="s03", at_s=(60.0,), step=0.3)
    assert cell_words(cell(SINGLE, *periods, levels, *stalls)) == (
        "Single runs give **no verdict**: a difference between stacks cannot be told from chance.",
        "`s00`, `s01`, `s02`, `s03` and 16 more stacks **stall**, most of all `s19`: of its seconds, 19 % below a "
        "tenth of its own median (the longest stall: 1 s).",
        "`s03` changed its level within a run, at 1 min, by 30 % at most.",
        "`s00` and `s01` swing, most of all `s00`: by 20 %, with a period of 60 s.",
    )


def test_pairs_of_the_leader_come_first_and_open_ones_share_a_sentence() -> None:
    pairs = [open_pair(x, y) for x, y in (("b", "c"), ("a", "b"), ("a", "c"), ("c", "d"), ("b", "d"), ("a", "d"))]
    lead, open_ = cell_words(cell(*pairs, LEADS))
    assert "`a` leads" in lead
    assert open_ == (
        "**Undecided**: `a` vs `b`: -10 % (no bounds yet), `a` vs `c`: -10 % (no bounds yet), "
        "`a` vs `d`: -10 % (no bounds yet), `b` vs `c`: -10 % (no bounds yet) and 2 more pairs."
    )


def test_an_open_pair_is_not_called_unconfirmed_too() -> None:
    unconfirmed = NotConfirmed(subject="b", object="a", metric="tps", pairs=60, provable_margin=0.1)
    assert len(told(cell(LEADS, open_pair("a", "b"), unconfirmed)).said) == 2
    assert len(told(cell(LEADS, open_pair("a", "c"), unconfirmed)).said) == 3


def test_a_cell_says_no_more_than_a_handful() -> None:
    decided = [
        open_pair("x", f"y{i}").model_copy(
            update={"relation": "worse", "certainty": "proven", "low": 0.8, "high": 0.95}
        )
        for i in range(20)
    ]
    all_ = told(cell(LEADS, *decided))
    assert (len(all_.said), len(all_.more)) == (MOST_SENTENCES, 21 - MOST_SENTENCES)
    assert cell_words(cell(LEADS, *decided))[-1] == "15 more sentences are on the page."
    assert "`a` leads" in all_.said[0].words


def test_an_import_of_single_runs_over_a_grid_says_so_once(tmp_path: Path) -> None:
    rows = [f"{stack},10,{clients},{100 + clients}" for stack in "abcdef" for clients in (1, 2, 4, 8)]
    (tmp_path / "runs.csv").write_text("\n".join(["stack,scale,clients,tps", *rows]) + "\n")
    import_csv(tmp_path / "runs.csv", tmp_path / "imported")
    data = read(tmp_path / "imported")
    findings = judge(data)
    assert len(common_sentences(findings)) == 1
    for text in (render_markdown(data, findings), render_terminal(data, findings)):
        assert text.count("a difference between stacks cannot be told from chance") == 1


def test_columns_in_which_nothing_was_measured_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("stack,tps\na,1\na,2\nb,1\nb,3\n")
    import_csv(tmp_path / "runs.csv", tmp_path / "imported")
    data = read(tmp_path / "imported")
    for text in (render_markdown(data, judge(data)), render_terminal(data, judge(data))):
        head = next(line for line in text.splitlines() if "runs" in line and "durability" in line)
        assert "load" not in head.lower()
        assert "stall" not in head.lower()


def test_clients_without_a_scale_are_not_pooled(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("stack,clients,tps\na,1,10\na,2,20\nb,1,10\nb,2,21\n")
    with pytest.raises(UsageError, match="1 and with 2 clients cannot be told apart"):
        import_csv(tmp_path / "runs.csv", tmp_path / "imported")
