"""Terminal, Markdown, CSV and JSON: complete, plain, and safe with any name."""

from __future__ import annotations

import csv
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.campaign.statements import DeclaredBlocks
from pgstrata.analyze.findings import Chosen, Comparison, Findings, PublishedFinding, StackFinding
from pgstrata.record.reader import CampaignData, TrialData, read
from pgstrata.record.schema import DiskUse, HostFacts, MediumRecord, ScriptRun
from pgstrata.report.html import reading_words, write_html
from pgstrata.report.markdown import escape_markdown, render_markdown
from pgstrata.report.render import render_csv, render_json
from pgstrata.report.sentences.header import incidents, report_head
from pgstrata.report.tables.agreement import add_published
from pgstrata.report.tables.further import further_tables
from pgstrata.report.tables.verdicts import verdict_tables
from pgstrata.report.terminal import print_terminal, render_terminal
from pgstrata.spec.notation.stack import parse_stack
from pgstrata_docs.report_json import render_reference
from pgstrata_fake.campaigns import NASTY, Shape, write_campaign


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_head_says_which_server_each_stack_had(data: CampaignData, findings: Findings) -> None:
    def served(trial: TrialData, version: str) -> TrialData:
        return replace(trial, facts=HostFacts(name="h", checked={"PostgreSQL version": version}))

    both = [served(t, "18.1-x (/opt/x)" if t.trial.stack == "xfs" else "18.1 (system)") for t in data.trials]
    head = report_head(replace(data, trials=tuple(both)), findings)
    assert "18.1-x (/opt/x): xfs" in head.facts["PostgreSQL"].split("; ")
    assert head.facts["PostgreSQL"].count("18.1 (system): ") == 1
    one = replace(data, trials=tuple(served(t, "18.1 (system)") for t in data.trials))
    assert report_head(one, findings).facts["PostgreSQL"] == "18.1 (system)"


def test_the_table_names_the_medium_before_any_figure(data: CampaignData, findings: Findings) -> None:
    text = render_terminal(data, findings)
    assert text.index("loop file on ext4 on /dev/vda") < text.index(" TPS")
    assert text.index("different durability") < text.index(" TPS")
    for stack in findings.stacks:
        assert stack.name[:12] in text


def test_the_head_has_the_rates_of_the_medium(data: CampaignData) -> None:
    assert "Baseline of the scratch folder" not in render_terminal(data, judge(data))
    measured = MediumRecord(
        at="2026-01-01", before_block=0, medium="ext4 on /dev/vda", seconds=2, flushes_per_s=9800, flushes_by="fio"
    )
    changed = measured.model_copy(update={"before_block": 3, "flushes_per_s": 2100})
    known = replace(data, media=(measured, changed))
    for text in (render_terminal(known, judge(known)), render_markdown(known, judge(known))):
        shown = text.replace("\\", "")
        assert "2,100 a second at QD1 (fio)" in shown
        assert "9,800 flushes a second before block 0" in shown
    value = json.loads(render_json(judge(known)))
    assert value["campaign"]["host"]["baseline"]["flushes_per_s"] == 2100


@pytest.mark.parametrize(
    ("stacks", "whose"),
    [
        (["ext4"], ""),
        (["ext4", "tmpfs"], ""),
        (["media(sata-ssd)/ext4", "tmpfs"], "on which no stack lies"),
        (["media(sata-ssd)/ext4", "xfs"], "on which not every stack lies"),
        (["dir:/mnt/x"], "on which no stack lies"),
        (["ext4@wal=media(nvme)/xfs"], "on which not every stack lies"),
    ],
)
def test_rates_of_the_scratch_folder_are_not_those_of_other_media(
    data: CampaignData, stacks: list[str], whose: str
) -> None:
    measured = MediumRecord(at="2026-01-01", before_block=0, medium="", seconds=2, flushes_per_s=9800, flushes_by="fio")
    campaign = data.campaign.model_copy(update={"stacks": tuple(parse_stack(s) for s in stacks)})
    record = data.record.model_copy(update={"campaign": campaign})
    (told,) = [text for title, text in _head_facts(replace(data, media=(measured,), record=record))
               if title == "Baseline of the scratch folder"]  # fmt: skip
    assert told.endswith(whose or "(fio)")


def test_the_table_says_what_its_columns_rest_on(findings: Findings) -> None:
    cell = findings.cells[0].model_copy(update={"screened": False})
    of_all = reading_words(findings, cell, paired=True)
    assert of_all.startswith(
        "Throughput is the mean of a stack's runs, corrected for blocks in which all stacks were slow or fast"
    )
    assert of_all.endswith("Intervals hold whenever one looks.")
    screened = reading_words(findings, cell.model_copy(update={"screened": True}), paired=True)
    assert "the screening's runs" in screened
    assert "of fresh pairs alone" in screened
    declared = cell.model_copy(update={"statements": (DeclaredBlocks(blocks=4),)})
    assert reading_words(findings, declared, paired=True).endswith("Intervals are of the declared blocks.")
    assert "block" not in reading_words(findings, cell, paired=False)


def _head_facts(data: CampaignData) -> list[tuple[str, str]]:
    return list(report_head(data, judge(data)).facts.items())


def change_files(directory: Path, pattern: str, **values: object) -> None:
    for path in directory.glob(pattern):
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_figures_of_an_emulated_machine_are_not_ranked_and_say_so(tmp_path: Path) -> None:
    directory = write_campaign(tmp_path / "emulated", Shape(("ext4", "xfs"), blocks=3, duration_s=10))
    change_files(directory, "trials/*/facts.json", kind="emulated")
    data = read(directory)
    findings = judge(data)
    for text in (render_terminal(data, findings), render_markdown(data, findings)):
        assert "(emulated)" in text or "\\(emulated\\)" in text
        assert "functional only" in text
        assert "not compared" in text
        assert "chosen" not in text
    assert all("functional only" in s["labels"] for s in json.loads(render_json(findings))["stacks"])


def test_an_unsupported_stack_is_shown_with_what_is_missing(tmp_path: Path) -> None:
    directory = write_campaign(
        tmp_path / "unsupported", Shape(("ext4", "xfs"), blocks=3, duration_s=10, incidents=False)
    )
    reason = "mkfs.xfs is not installed"
    changed = {"status": "unsupported", "reason": reason, "hint": "apt-get install x", "files": []}
    change_files(directory, "trials/*-01-s50/verdict.json", **changed)
    for cells in directory.glob("trials/*-01-s50/cells"):
        shutil.rmtree(cells)
    data = read(directory)
    text = render_terminal(data, judge(data))
    assert "unsupported xfs" in text
    assert reason in text
    assert "HINT: apt-get install x" in text
    assert "unsupported" in render_markdown(data, judge(data))


def test_a_stack_that_could_be_built_later_is_ranked_and_its_first_trial_named(tmp_path: Path) -> None:
    directory = write_campaign(tmp_path / "later", Shape(("ext4", "xfs"), blocks=4, duration_s=10, incidents=False))
    change_files(directory, "trials/b00-*-01-s50/verdict.json", status="unsupported", reason="no mkfs.xfs")
    data = read(directory)
    findings = judge(data)
    assert findings.ranking[0] == "xfs"
    (table,) = verdict_tables(findings)
    assert [row.name for row in table.rows] == ["xfs", "ext4"]
    assert table.unsupported == ()
    assert [(i.what, i.stack) for i in incidents(data, findings)] == [("unsupported", "xfs")]


def test_every_failure_and_exclusion_is_listed_with_its_reason(data: CampaignData, findings: Findings) -> None:
    text = render_terminal(data, findings)
    assert "server closed the connection unexpectedly" in text
    assert "HINT: pgstrata doctor" in text
    assert "foreign load: 41 %" in text


def test_what_is_no_terminal_gets_plain_text(data: CampaignData, findings: Findings) -> None:
    text = render_terminal(data, findings)
    assert "\x1b" not in text
    assert "│" not in text


@pytest.mark.parametrize("width", [80, 100, 180])
def test_no_figure_is_cut_off_in_a_narrow_terminal(data: CampaignData, findings: Findings, width: int) -> None:
    text = render_terminal(data, findings, width)
    assert max(len(line) for line in text.splitlines()) <= width
    for row in verdict_tables(findings)[0].rows:
        for shown in (row.primary.value, row.primary.interval, row.against_best.value, row.jitter, row.load, row.space):
            assert shown in text


def test_colour_is_for_terminals_that_want_it(
    data: CampaignData, findings: Findings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    out = Tty()
    print_terminal(data, findings, out, width=150)
    assert "\x1b[" in out.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    out = Tty()
    print_terminal(data, findings, out, width=150)
    assert "\x1b[3" not in out.getvalue()


def test_markdown_shows_a_nasty_name_as_text(data: CampaignData, findings: Findings) -> None:
    text = render_markdown(data, findings)
    table = [line for line in text.splitlines() if line.startswith("| ")]
    assert any("ext4-&lt;script&gt;alert(1)&lt;/script&gt;" in line for line in table)
    assert not any("<script>" in line for line in table)
    assert escape_markdown("a|b*c") == "a\\|b\\*c"


def test_every_line_of_a_markdown_table_has_the_same_columns(data: CampaignData, findings: Findings) -> None:
    cell = findings.cells[0].id
    figure = PublishedFinding(
        study="study", stack="ext4", cell=cell, metric="tps", value=1.0, baseline="xfs", ratio=0.5
    )
    joined = add_published(findings, "an article", [figure])
    terminal = render_terminal(data, joined)
    assert "Published (an article)" in terminal
    assert "0.500×" in terminal
    lines = render_markdown(data, joined).splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("| ---")]
    assert len(starts) == 4
    for start in starts:
        columns = lines[start].count("|")
        at = start - 1
        while at < len(lines) and lines[at].startswith("|"):
            assert lines[at].count("|") - lines[at].count("\\|") == columns
            at += 1


def test_csv_has_one_row_a_run_and_one_for_each_trial_that_measured_nothing(data: CampaignData) -> None:
    rows = list(csv.DictReader(io.StringIO(render_csv(data))))
    assert len(rows) == len(data.trials)
    failed = [r for r in rows if r["status"] == "failed"]
    assert [r["tps"] for r in failed] == [""]
    measured = {r["trial"]: float(r["tps"]) for r in rows if r["tps"]}
    assert measured == {c.trial_id: c.result.tps for c in data.cells(valid_only=False)}
    assert NASTY in {r["stack"] for r in rows}


def test_json_is_the_contract(data: CampaignData, findings: Findings) -> None:
    value = json.loads(render_json(findings))
    assert value["schema"] == "pgstrata.report/1"
    assert value["campaign"].keys() >= {"name", "primary", "margin", "seed", "host", "postgres_version"}
    stack = value["stacks"][0]
    assert stack.keys() >= {"name", "spec", "n", "excluded", "unsupported", "metrics", "durability"}
    assert stack["durability"].keys() >= {"class", "verdict", "states", "lost", "corrupt", "unknown"}
    assert stack["metrics"]["tps"].keys() >= {"estimate", "low", "high", "runs"}
    assert value["comparisons"][0].keys() >= {"a", "b", "metric", "scale", "ratio", "low", "high", "level", "kind"}
    assert sorted(value["ranking"]) == sorted(s.name for s in findings.stacks)
    assert Findings.model_validate(value) == findings


def test_the_reference_of_the_json_names_every_key_of_it(findings: Findings) -> None:
    reference = render_reference()
    for key in (*json.loads(render_json(findings)), *StackFinding.model_fields, *Comparison.model_fields):
        assert f"`{key}`" in reference


def test_a_choice_stands_beside_no_open_verdict_of_its_class(findings: Findings) -> None:
    first = findings.cells[0]
    chosen = Chosen(**{"name": first.ranking[0], "class": "survives power loss", "left_behind": (first.ranking[1],)})
    cells = (first.model_copy(update={"chosen": chosen}), *findings.cells[1:])
    open_pairs = tuple(
        c.model_copy(update={"verdict": "undecided", "proven": False, "kind": "screen"}) for c in findings.comparisons
    )
    changed = findings.model_copy(update={"cells": cells, "comparisons": open_pairs})
    best, second, *rest = verdict_tables(changed)[0].rows
    assert best.verdict == "chosen"
    assert (second.verdict, second.verdict_detail) == ("left behind by screening", "")
    assert all(row.verdict == "undecided" for row in rest)


def with_disks(data: CampaignData, count: int = 1) -> CampaignData:
    """Each run has modelled disks; the second wrote twice as much as the first, and so on."""
    used = {"elapsed_s": 45.0, "reads": 9, "writes": 90, "zeroes": 0, "flushes": 45, "errors": 0, "read_bytes": 1}
    spent = {"written_bytes": 1, "queued_s": 9.0, "busy_s": 40.5, "seeks": 18, "seek_s": 4.5}
    first = {"model": "hdd-7200", **used, **spent, "late_percent_counts": (9, 0, 1)}
    disks = tuple(
        DiskUse.model_validate({**first, "disk": f"data.{number}", "writes": 90 * (number + 1)})
        for number in range(count)
    )
    trials = tuple(
        replace(t, cells=tuple(replace(c, result=c.result.model_copy(update={"disks": disks})) for c in t.cells))
        for t in data.trials
    )
    return replace(data, trials=trials)


def test_what_modelled_disks_did_is_in_every_text(data: CampaignData, tmp_path: Path) -> None:
    assert "modelled disks" not in render_terminal(data, judge(data))
    known = with_disks(data)
    found = judge(known)
    page = write_html(known, found, tmp_path / "page.html").read_text()
    for text in (render_terminal(known, found, 220), render_markdown(known, found), page):
        assert "What the modelled disks did" in text
        shown = text.replace("\\", "")
        assert "hdd-7200" in shown
        assert "90 %" in shown  # busy
        assert "0 %, 2 %" in shown  # late
    disks = json.loads(render_json(found))["stacks"][0]["disks"]
    assert disks[0]["busy_share"] == pytest.approx(0.9)


def with_scripts(data: CampaignData, *names: str) -> CampaignData:
    """Each run is of a mix of those scripts."""
    scripts = tuple(
        ScriptRun(
            name=name,
            weight=9,
            transactions=10 * (at + 1),
            tps=1.5,
            latency_avg_ms=2.25,
            latency_stddev_ms=1.125,
            percentiles_ms={"p99": 7.75},
        )
        for at, name in enumerate(names)
    )
    trials = tuple(
        replace(t, cells=tuple(replace(c, result=c.result.model_copy(update={"scripts": scripts})) for c in t.cells))
        for t in data.trials
    )
    return replace(data, trials=trials)


def test_scripts_of_a_mix_are_in_every_text(data: CampaignData, tmp_path: Path) -> None:
    assert "Scripts of the mix, statements of the load" not in render_terminal(data, judge(data))
    nasty = "<script>alert(1)</script>|*x*"
    known = with_scripts(data, "orders", nasty)
    found = judge(known)
    page = write_html(known, found, tmp_path / "page.html").read_text()
    markdown = render_markdown(known, found)
    for text in (render_terminal(known, found, 220), markdown, page):
        assert "Scripts of the mix, statements of the load" in text
        for shown in ("orders", "33.3 %", "66.7 %", "2.25 ms", "1.5", "7.75 ms"):
            assert shown in text
    assert "None" not in markdown
    assert nasty.partition("|")[0] not in page
    assert "&lt;script&gt;" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\|\\*x\\*" in markdown
    scripts = json.loads(render_json(found))["stacks"][0]["scripts"]
    assert [(one["script"], one["share"]) for one in scripts] == [("orders", 1 / 3), (nasty, 2 / 3)]


def test_many_disks_of_a_volume_stand_in_one_row_with_the_span_of_their_figures(data: CampaignData) -> None:
    def rows(count: int) -> list[tuple[str, ...]]:
        findings = judge(with_disks(data, count))
        (disks,) = further_tables(findings, findings.cells[0])
        return [row for row in disks.rows if row[0] == findings.stacks[0].name]

    assert [row[1] for row in rows(3)] == ["data.0", "data.1", "data.2"]
    ((_, disk, _, reads, writes, *_, late),) = rows(25)
    assert (disk, reads, writes, late) == ("data.0 … data.24 (25)", "0.200", "2 … 50", "0 %, 2 %")
