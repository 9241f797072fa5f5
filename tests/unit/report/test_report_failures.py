"""Transactions that failed or were tried again are told beside every verdict, in every form of the report."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from pgstrata.analyze.campaign.caveats import transactions_of
from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.campaign.statements import Behind, Choice, Price
from pgstrata.analyze.finding import Transactions
from pgstrata.analyze.findings import Findings
from pgstrata.analyze.sessions.comparison import Session, compare_sessions, session_of
from pgstrata.analyze.sessions.history import trace_history
from pgstrata.cli.campaign_run import judge_gate, parse_gate
from pgstrata.errors import ExitCode
from pgstrata.importers.csv_runs import import_csv
from pgstrata.record.reader import CampaignData, read
from pgstrata.report.html import html_text
from pgstrata.report.markdown import render_markdown
from pgstrata.report.render import render_csv, report_value
from pgstrata.report.sentences.answer import cell_answer
from pgstrata.report.sentences.history import (
    below_words,
    comparison_lines,
    comparison_value,
    history_value,
    moment_names,
    write_history,
)
from pgstrata.report.sentences.statements import sentence
from pgstrata.report.sentences.why import profiles_of, why_words, whys_of
from pgstrata.report.tables.grid import grid_map
from pgstrata.report.tables.verdicts import verdict_tables
from pgstrata.report.terminal import render_terminal
from pgstrata_fake.campaigns import Shape, write_campaign

SHARES = {"xfs": "20 % failed and 5 % were retried", "ext4": "0.2 % failed"}


def failing(folder: Path, shares: dict[str, tuple[float, float]], clients: tuple[int, ...] = (8,)) -> CampaignData:
    """A campaign in which shares of a stack's transactions, beside the committed ones, failed and were retried."""
    write_campaign(folder, Shape(stacks=("ext4", "xfs", "btrfs"), blocks=5, duration_s=45, clients=clients))
    stacks = {trial.id: trial.trial.stack for trial in read(folder).trials}
    for path in sorted((folder / "trials").glob("*/cells/*/result.json")):
        failed, retried = shares.get(stacks[path.parents[2].name], (0.0, 0.0))
        value = json.loads(path.read_text())
        tried = value["transactions"] / (1 - failed)
        value |= {"failed": round(failed * tried), "retried": round(retried * tried)}
        path.write_text(json.dumps(value))
    return read(folder)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> CampaignData:
    shares = {"xfs": (0.20, 0.05), "ext4": (0.002, 0.0005), "btrfs": (0.0002, 0.0)}
    return failing(tmp_path_factory.mktemp("failing") / "c", shares)


@pytest.fixture(scope="module")
def findings(data: CampaignData) -> Findings:
    return judge(data)


def test_the_answer_and_every_pair_say_it(data: CampaignData, findings: Findings) -> None:
    (cell,) = findings.cells
    found = cell_answer(data, findings, cell)
    assert found is not None
    assert all(f"of `{name}` {words}" in found.words for name, words in SHARES.items())
    assert found.words.count("Committed transactions alone count") == 1
    value = report_value(findings)
    told = [c for c in value["comparisons"] if c["sentence"] and {c["a"], c["b"]} & SHARES.keys()]
    assert told
    for one in told:
        for name in {one["a"], one["b"]} & SHARES.keys():
            assert f"of `{name}` {SHARES[name]}" in one["sentence"]
            assert one["uncounted"][name]["failed"] > 0
        assert "btrfs" not in one["uncounted"]


def test_the_table_says_it_in_every_form(data: CampaignData, findings: Findings) -> None:
    (table,) = verdict_tables(findings)
    assert {row.name: row.failures for row in table.rows} == {**SHARES, "btrfs": "none"}
    for text in (render_markdown(data, findings), render_terminal(data, findings), html_text(data, findings)):
        assert text.replace("\xa0", " ").count(SHARES["xfs"]) >= 2  # in the answer, and in the table


def test_why_says_it(findings: Findings) -> None:
    (cell,) = findings.cells
    found = [w for w in whys_of(findings, cell) if "xfs" in (w.a, w.b) and w.beyond_noise]
    assert found
    profiles = profiles_of(findings, cell)
    assert all(SHARES["xfs"] in why_words(w, profiles) for w in found)


def test_imports_say_it(data: CampaignData, tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(render_csv(data))
    import_csv(tmp_path / "runs.csv", tmp_path / "out")
    imported = read(tmp_path / "out")
    text = render_markdown(imported, judge(imported))
    assert text.count(SHARES["xfs"]) >= 2


@pytest.fixture(scope="module")
def sessions(
    data: CampaignData, findings: Findings, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Session, Session]:
    """A day on which transactions failed, and the next one, on which only ext4's did."""
    later = failing(tmp_path_factory.mktemp("later") / "c", {"ext4": (0.3, 0.0), "xfs": (0.0009, 0.0)})
    first = session_of("monday", data, findings)
    return first, replace(session_of("tuesday", later, judge(later)), at=first.at + timedelta(days=1))


def test_compared_campaigns_say_it(sessions: tuple[Session, Session]) -> None:
    found = compare_sessions(*sessions, "ext4")
    told = [line.strip() for line in comparison_lines(found) if "committed transactions alone count" in line]
    cell = found.moved[0].cell
    assert sorted(told) == [
        f"ext4, {cell}: committed transactions alone count: in monday {SHARES['ext4']}",
        f"ext4, {cell}: committed transactions alone count: in tuesday 30 % failed",
        f"xfs, {cell}: committed transactions alone count: in monday {SHARES['xfs']}",
    ]
    value = json.loads(json.dumps(comparison_value(found)))
    shown = {(one["session"], one["stack"]): one["failed"] for one in value["uncounted"]}
    assert shown == pytest.approx({(0, "ext4"): 0.002, (0, "xfs"): 0.2, (1, "ext4"): 0.3}, rel=0.01)


def test_a_history_says_it_of_the_worst_session(sessions: tuple[Session, Session], tmp_path: Path) -> None:
    found = trace_history(sessions, "ext4")
    cell, (first, second) = found.series[0].cell, moment_names(found)
    told = [
        f"ext4, {cell}: committed transactions alone count: in {second} 30 % failed, and in 1 other session fewer",
        f"xfs, {cell}: committed transactions alone count: in {first} {SHARES['xfs']}",
    ]
    assert sorted(below_words(found)) == told
    assert all(line in write_history(found, tmp_path / "page.html").read_text() for line in told)
    assert len(json.loads(json.dumps(history_value(found)))["uncounted"]) == 3


@pytest.mark.parametrize(
    ("condition", "begins", "code"),
    [
        ("tps(xfs) > 1", "--fail-on: tps(xfs) > 1: holds in cell", ExitCode.CONDITION_HELD),
        ("tps(xfs) < 1", "warning: --fail-on: tps(xfs) < 1: does not hold in cell", ExitCode.DONE),
        ("tps(btrfs) < 1", "", ExitCode.DONE),
    ],
)
def test_conditions_say_it_also_where_they_do_not_hold(
    findings: Findings, capsys: pytest.CaptureFixture[str], condition: str, begins: str, code: ExitCode
) -> None:
    assert judge_gate(parse_gate([condition]), findings) is code
    said = capsys.readouterr().err
    assert said.startswith(begins)
    assert said.endswith(f". Committed transactions alone count: of xfs {SHARES['xfs']}.\n" if begins else "")
    assert bool(said) == bool(begins)


def test_the_grid_says_in_how_many_cells(tmp_path: Path) -> None:
    data = failing(tmp_path / "c", {"xfs": (0.2, 0.0)}, clients=(1, 8))
    shown = grid_map(judge(data))
    assert shown is not None
    assert shown.words.endswith("of 2 cells; failures in 2 of them")


def test_runs_weigh_by_their_transactions(data: CampaignData) -> None:
    one = next(data.cells()).result
    large = one.model_copy(update={"transactions": 900, "failed": 0, "skipped": 0, "late": 9, "retried": 90})
    small = one.model_copy(update={"transactions": 0, "failed": 60, "skipped": 40, "late": 0, "retried": 0})
    assert transactions_of([large, small]) == Transactions(
        tried=1000, failed=0.06, skipped=0.04, late=0.009, retried=0.09
    )
    assert transactions_of([one.model_copy(update={"transactions": 0, "failed": 0, "skipped": 0})]) is None


def test_little_is_not_told(tmp_path: Path) -> None:
    data = failing(tmp_path / "c", {"xfs": (0.0009, 0.0009)})
    findings = judge(data)
    (table,) = verdict_tables(findings)
    assert "failures" not in {c.field for c in table.columns}
    assert "Committed transactions alone" not in render_markdown(data, findings)
    assert next(s for s in findings.stacks if s.name == "xfs").transactions is not None


@pytest.mark.parametrize(
    "claim",
    [
        Choice(subject="a", relation="chosen", metric="tps", margin=0.02),
        Behind(subject="a", metric="tps", others=(), source="screening"),
        Price(**{"subject": "a", "object": "b", "metric": "tps", "amount": 1.5, "low": 1.2, "high": 1.8,
                 "class": "loses on power loss"}),
    ],
    ids=lambda claim: claim.about,
)  # fmt: skip
def test_every_claim_ends_with_it(claim: Choice | Behind | Price) -> None:
    lost = Transactions(tried=100, failed=0.03, skipped=0.0, late=0.0, retried=0.0)
    words = sentence(claim.model_copy(update={"uncounted": {"a": lost}}))
    assert words == f"{sentence(claim)} **Committed transactions alone count**: of `a` 3 % failed."
