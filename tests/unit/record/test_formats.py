"""Records of every format that was ever written: they open, give the same figures, report, and are gone on with.

`tests/fixtures/record` holds them as they were written: `majors` is of real servers, `layers` has every layer, `stages`
every stage and a failed trial (both of made-up figures). They are never made anew.
"""

from __future__ import annotations

import json
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.campaign.metrics import Observer
from pgstrata.errors import UsageError
from pgstrata.record.reader import CampaignData, read
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.record.schema import ADDED_COLUMNS, FORMAT
from pgstrata.record.upgrade import CHANGES
from pgstrata.report.render import render
from pgstrata.spec.crash_request import CrashRequest
from pgstrata.trial.events import silent
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.scheduler import run_campaign
from pgstrata.trial.scheduling import FixedBlocks
from pgstrata_fake.runner import FakeRunner

FIXTURES = Path(__file__).parents[2] / "fixtures" / "record"
FIRST = {
    # runs, sum of their TPS, decisions
    "majors": (6, 18802.3, 2),
    "layers": (40, 85991.9, 2),
    "stages": (86, 144839.7, 29),
}
EVERY_FORMAT = sorted(FIXTURES.glob("version-*.zip"))


def unpacked(name: str, folder: Path) -> Path:
    with zipfile.ZipFile(FIXTURES / f"version-1-{name}.zip") as archive:
        archive.extractall(folder)
    return folder


@cache
def data_of(path: Path) -> CampaignData:
    """As it is in the zip: read once for all tests."""
    return read(path)


def figures(data: CampaignData) -> tuple[int, float, int]:
    runs = [cell.result.tps or 0.0 for cell in data.cells(valid_only=False)]
    return len(runs), round(sum(runs), 1), len(data.decisions)


def test_every_earlier_format_has_a_record_and_what_changed_after_it() -> None:
    formats = range(1, FORMAT)
    assert {int(path.name.split("-")[1]) for path in EVERY_FORMAT} == set(formats) == set(CHANGES)


@pytest.mark.parametrize("path", EVERY_FORMAT, ids=lambda path: path.stem)
def test_it_opens_and_gives_a_report(path: Path, tmp_path: Path) -> None:
    data = data_of(path)
    assert data.unreadable == ()
    findings = judge(data)
    assert {stack.name for stack in findings.stacks} == {stack.name for stack in data.campaign.stacks}
    (page,) = render(data, findings, ["html"], tmp_path).paths
    assert page.stat().st_size > 0


@pytest.mark.parametrize("name", FIRST)
def test_it_gives_the_figures_that_were_measured(name: str) -> None:
    assert figures(data_of(FIXTURES / f"version-1-{name}.zip")) == FIRST[name]


@pytest.mark.parametrize("name", FIRST)
def test_it_is_gone_on_with_in_todays_format(name: str, tmp_path: Path) -> None:
    old = unpacked(name, tmp_path / "c")
    trials = {file: file.read_bytes() for file in (old / "trials").rglob("*") if file.is_file()}
    before = data_of(FIXTURES / f"version-1-{name}.zip")
    with CampaignDirectory.create_or_open(old, before.campaign, before.record.origin) as directory:
        assert directory.finished() == before.trials
        assert directory.decisions() == before.decisions
    value = json.loads((old / "campaign.json").read_text())
    assert value["format"] == FORMAT
    assert "schema_" not in value
    (earlier,) = (old / "campaign-before.jsonl").read_text().splitlines()
    assert json.loads(earlier)["schema_"] == "pgstrata.campaign/1"
    assert {file: file.read_bytes() for file in trials} == trials, "a finished trial was written again"
    CampaignDirectory.create_or_open(old, before.campaign, before.record.origin).close()
    assert len((old / "campaign-before.jsonl").read_text().splitlines()) == 1


def test_it_is_gone_on_with_by_a_run(tmp_path: Path) -> None:
    old = unpacked("majors", tmp_path / "c")
    before = read(old)
    runs = before.campaign.runs.model_copy(update={"blocks": 2})
    campaign = before.campaign.model_copy(update={"runs": runs})
    with CampaignDirectory.create_or_open(old, campaign) as directory:
        outcome = run_campaign(
            campaign,
            directory,
            FakeRunner(campaign),
            FixedBlocks(tuple(stack.name for stack in campaign.stacks), 2, None),
            silent,
            observe=Observer("tps"),
            interruption=Interruption(),
        )
    assert outcome.counts == {"ok": 12}
    data = read(old)
    assert data.trials[:6] == before.trials
    assert [trial.trial.block for trial in data.trials[6:]] == [1] * 6
    assert [decision.after_block for decision in data.decisions] == [0, 1, 1, 2]


@pytest.mark.parametrize(
    ("figures_", "expected"),
    [
        ({"budget used": "2 h of 3 h", "sigma": 0.1}, ({"sigma": 0.1}, "2 h of 3 h")),
        ({"sigma": 0.1}, ({"sigma": 0.1}, "")),
    ],
)
def test_the_notice_about_the_budget_was_a_figure(
    figures_: dict[str, object], expected: tuple[object, str], tmp_path: Path
) -> None:
    old = unpacked("majors", tmp_path / "c")
    line = {"after_block": 1, "stage": "done", "continue_with": [], "figures": figures_}
    (old / "decisions.jsonl").write_text(json.dumps(line) + "\n")
    (decision,) = read(old).decisions
    assert (decision.figures, decision.budget_notice) == expected


class TestAnotherFormat:
    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        directory = unpacked("majors", tmp_path / "c")
        data = read(directory)
        CampaignDirectory.create_or_open(directory, data.campaign, data.record.origin).close()
        return directory

    @staticmethod
    def set_format(file: Path, format_: object) -> None:
        """Of the file's one object, or of that of its first line."""
        text = file.read_text()
        value = json.loads(text.splitlines()[0] if file.suffix == ".jsonl" else text)
        file.write_text(json.dumps({**value, "format": format_}) + "\n")

    def test_a_later_one_is_refused(self, directory: Path) -> None:
        self.set_format(directory / "campaign.json", FORMAT + 1)
        with pytest.raises(UsageError, match=f"has format {FORMAT + 1}; .* up to {FORMAT}") as caught:
            read(directory)
        assert "or a later one" in caught.value.hint

    def test_a_later_one_is_not_gone_on_with(self, directory: Path) -> None:
        campaign = read(directory).campaign
        self.set_format(directory / "campaign.json", FORMAT + 1)
        written = (directory / "campaign.json").read_text()
        with pytest.raises(UsageError, match=f"has format {FORMAT + 1}"):
            CampaignDirectory.create_or_open(directory, campaign)
        assert (directory / "campaign.json").read_text() == written

    def test_a_trial_of_a_later_one_costs_itself_alone(self, directory: Path) -> None:
        trial = read(directory).trials[0]
        self.set_format(directory / trial.folder / "planned.json", FORMAT + 1)
        data = read(directory)
        assert [one.id for one in data.unreadable] == [trial.id]
        assert f"has format {FORMAT + 1}" in data.unreadable[0].reason

    def test_a_decision_of_a_later_one_is_refused(self, directory: Path) -> None:
        self.set_format(directory / "decisions.jsonl", FORMAT + 1)
        with pytest.raises(UsageError, match=f"decisions.jsonl has format {FORMAT + 1}"):
            read(directory)

    @pytest.mark.parametrize("format_", [None, 0, -1, "2", 2.0, True])
    def test_what_is_no_format_is_damage(self, directory: Path, format_: object) -> None:
        self.set_format(directory / "campaign.json", format_)
        with pytest.raises(UsageError, match="which is no number from 1"):
            read(directory)

    def test_a_campaign_that_does_not_say_it_is_none(self, directory: Path) -> None:
        (directory / "campaign.json").write_text("{}")
        with pytest.raises(UsageError, match="does not say its format"):
            read(directory)


@pytest.mark.parametrize("series", ADDED_COLUMNS)
def test_columns_that_a_series_has_got_since_are_null(series: str) -> None:
    for cell in data_of(FIXTURES / "version-1-majors.zip").cells():
        table = cell.table(series)
        added = ADDED_COLUMNS[series]
        assert set(added) < set(table)
        assert table["t_s"].size > 0
        assert all(np.isnan(table[name]).all() for name in added)
        assert list(cell.table(series, ["t_s", *added])) == ["t_s", *added]


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("disk", {"states": 6, "ignore_flushes": "3", "fault": "slow-flush", "script": "tpcb-like"}),
        ("nodes", {"states": 3, "promote": "least", "rejoin": "rewind"}),
        ("power", {"states": 4, "power": True, "gone": ("standby1",)}),
    ],
)
def test_what_a_crash_trial_was_asked_is_read_from_its_fields(name: str, asked: dict[str, object]) -> None:
    (crash,) = data_of(FIXTURES / f"version-2-{name}.zip").crashes
    assert crash.found.request == CrashRequest.model_validate(asked)
