"""The grid at a glance: the winner of each cell, and how far the others are behind it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.findings import CellFinding, Findings
from pgstrata.record.reader import CampaignData, TrialData, read
from pgstrata.report.markdown import render_markdown
from pgstrata.report.pictures.drawing import Sample, draw
from pgstrata.report.pictures.files import write_pictures
from pgstrata.report.render import render
from pgstrata.report.tables.grid import GridMap, grid_map
from pgstrata.report.tables.verdicts import cell_title, short_titles
from pgstrata.report.terminal import render_terminal
from pgstrata.spec.campaign import Runs
from pgstrata_fake.campaigns import Shape, write_campaign

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> CampaignData:
    shape = Shape(stacks=("ext4", "xfs", "btrfs"), blocks=3, duration_s=5, clients=(1, 8), scales=(50, 100),
                  base_tps={"ext4": 2000.0, "xfs": 1500.0, "btrfs": 600.0}, incidents=False)  # fmt: skip
    return read(write_campaign(tmp_path_factory.mktemp("grid") / "c", shape))


@pytest.fixture(scope="module")
def found(grid: CampaignData) -> Findings:
    return judge(grid)


@pytest.fixture(scope="module")
def summary(found: Findings) -> GridMap:
    shown = grid_map(found)
    assert shown is not None
    return shown


def test_every_cell_has_its_winner_and_every_stack_a_field(summary: GridMap) -> None:
    assert summary.stacks == ("ext4", "xfs", "btrfs")
    assert [row.title for row in summary.rows] == [
        "scale 50, 1 client", "scale 50, 8 clients", "scale 100, 1 client", "scale 100, 8 clients",
    ]  # fmt: skip
    for row in summary.rows:
        assert row.winner == "ext4"
        assert [field.stack for field in row.fields] == list(summary.stacks)
        best, near, far = row.fields
        assert best.text.endswith(" TPS")
        assert best.shade == 0
        assert near.text.startswith("−")
        assert near.text.endswith(" %")
        assert near.shade is not None
        assert far.shade == 5
        assert 2 <= near.shade < far.shade
        assert "3 runs" in far.tip
    assert summary.words.startswith("ext4 in 4")
    assert summary.words.endswith("of 4 cells")


def test_one_cell_is_no_grid(findings: Findings) -> None:
    assert grid_map(findings) is None


def test_a_cell_without_a_valid_run_says_so(found: Findings) -> None:
    first = found.cells[0]
    stacks = tuple(s.model_copy(update={"n": 0, "metrics": {}}) if s.cell == first.id else s for s in found.stacks)
    cells = (first.model_copy(update={"ranking": (), "statements": (), "chosen": None}), *found.cells[1:])
    comparisons = tuple(c for c in found.comparisons if c.cell != first.id)
    broken = found.model_copy(update={"stacks": stacks, "cells": cells, "comparisons": comparisons})
    shown = grid_map(broken)
    assert shown is not None
    row = next(r for r in shown.rows if r.index == 0)
    assert (row.winner, row.verdict) == (None, "no valid run")
    assert {field.text for field in row.fields} == {"n/a"}
    assert "none in 1" in shown.words


def cell(**more: object) -> CellFinding:
    given = {"id": "c", "script": "orders", "scale": 50, "clients": 8, "ranking": (), "chosen": None, "statements": ()}
    return CellFinding.model_validate({**given, **more})


def test_titles_have_no_scale_where_there_is_none() -> None:
    assert cell_title(cell()) == "orders, scale 50, 8 clients"
    assert cell_title(cell(scaled=False)) == "orders, 8 clients"
    assert cell_title(cell(scale=0, clients=0)) == "orders"
    assert cell_title(cell(scale=0, clients=4)) == "orders, 4 clients"


def test_short_titles_leave_out_what_is_the_same_everywhere(found: Findings) -> None:
    cells = (cell(id="a", clients=1), cell(id="b", clients=8))
    assert short_titles(found.model_copy(update={"cells": cells})) == {"a": "1 client", "b": "8 clients"}
    assert short_titles(found.model_copy(update={"cells": cells[:1]})) == {"a": "orders, scale 50, 1 client"}


def test_the_size_of_the_database_is_told_against_memory(grid: CampaignData, found: Findings) -> None:
    drawn = draw(grid, found, Sample.of(grid)).cells
    shares = {c.scale: c.memory_share for c in drawn}
    assert shares[50] == pytest.approx(15.1 * 50 / (32 * 1024), rel=0.01)
    assert shares[100] == pytest.approx(2 * (shares[50] or 0), rel=0.01)


def test_the_page_shows_the_grid_before_the_cells(grid: CampaignData, found: Findings, tmp_path: Path) -> None:
    text = render(grid, found, ["html"], tmp_path).paths[0].read_text(encoding="utf-8")
    assert text.index('id="grid"') < text.index('id="verdicts"')
    assert text.count("data-choose=") == 4


def test_pictures_have_the_grid_and_its_curves(grid: CampaignData, found: Findings, tmp_path: Path) -> None:
    paths = {p.stem: p for p in write_pictures(grid, found, tmp_path, ["svg"])}
    summary = grid_map(found)
    assert summary is not None
    heat = paths["grid"].read_text()
    assert all(field.text in heat for row in summary.rows for field in row.fields)
    assert all(row.title in heat for row in summary.rows)
    assert {"curves-clients", "curves-scale"} <= set(paths)


def test_terminal_and_markdown_have_the_grid_before_its_cells(
    grid: CampaignData, found: Findings, summary: GridMap
) -> None:
    text, markdown = render_terminal(grid, found), render_markdown(grid, found)
    titles = [f"\n{cell_title(cell)}" for cell in found.cells]
    whole = text[text.index("\nThe grid\n") : text.index(titles[0])]
    marked = markdown[markdown.index("\n## The grid\n") : markdown.index("\n## tpcb-like")]
    for row in summary.rows:
        (line,) = (line for line in whole.splitlines() if line.startswith(row.title))
        fields = [field.text for field in row.fields]
        assert [part.strip() for part in line.split("|")] == [row.title, "ext4", row.verdict, *fields]
        assert f"| {' | '.join([row.title, 'ext4', row.verdict, *fields])} |\n" in marked
    for told in (whole, marked):
        assert f"Best of its durability class: {summary.words}." in told


@pytest.mark.parametrize(("width", "shown"), [(180, 3), (75, 2), (60, 0)])
def test_a_narrow_terminal_shows_the_stacks_that_do_best(
    grid: CampaignData, found: Findings, width: int, shown: int
) -> None:
    text = render_terminal(grid, found, width)
    part = text[text.index("\nThe grid\n") : text.index("\ntpcb-like")]
    (head,) = (line for line in part.splitlines() if line.startswith("cell "))
    assert [title.strip() for title in head.split("|")][3:] == ["ext4", "xfs", "btrfs"][:shown]
    assert max(map(len, part.splitlines())) <= width
    assert ("No room here for" in part) == (shown < 3)


def test_one_cell_has_no_grid_in_terminal_and_markdown(data: CampaignData, findings: Findings) -> None:
    assert "The grid" not in render_terminal(data, findings)
    assert "The grid" not in render_markdown(data, findings)


def test_that_intervals_are_of_declared_blocks_is_said_once(grid: CampaignData) -> None:
    campaign = grid.campaign.model_copy(update={"runs": Runs(blocks=4)})
    trials = tuple(t for t in grid.trials for t in (t, *_again(t)))
    record = grid.record.model_copy(update={"campaign": campaign, "declared_blocks": 4})
    declared = replace(grid, record=record, trials=trials)
    findings = judge(declared)
    for text in (render_terminal(declared, findings), render_markdown(declared, findings)):
        assert text.count("Intervals are of the 4 declared blocks") == 1
        assert text.index("Intervals are of the 4") < text.index("The grid")


def _again(trial: TrialData) -> tuple[TrialData, ...]:
    """The trial of block 2 once more, as one of block 3."""
    if trial.trial.block != 2:
        return ()
    return (replace(trial, trial=trial.trial.model_copy(update={"block": 3, "id": f"{trial.trial.id}-again"})),)
