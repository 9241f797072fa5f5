"""Settings of the servers: what differs between stacks, in the units of SHOW."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pgstrata.analyze.findings import Findings
from pgstrata.record.reader import CampaignData
from pgstrata.record.schema import SettingRecord
from pgstrata.report.html import html_text
from pgstrata.report.tables.settings import render_setting, setting_table, stack_settings


@pytest.mark.parametrize(
    ("setting", "unit", "shown"),
    [
        ("16384", "8kB", "128MB"),
        ("1024", "MB", "1GB"),
        ("1", "8kB", "8kB"),
        ("0", "8kB", "0"),
        ("-1", "8kB", "-1"),
        ("300", "s", "5min"),
        ("200", "ms", "200ms"),
        ("90", "s", "90s"),
        ("4", None, "4"),
        ("0.9", None, "0.9"),
        ("", None, "(empty)"),
        (None, "MB", "n/a"),
        ("12", "furlong", "12"),
        ("9" * 5000, "kB", "9" * 5000),
    ],
)
def test_values_are_shown_as_the_server_shows_them(setting: str | None, unit: str | None, shown: str) -> None:
    assert render_setting(setting, unit) == shown


def with_settings(data: CampaignData, by_stack: dict[str, list[SettingRecord]]) -> CampaignData:
    trials = tuple(replace(t, settings=tuple(by_stack.get(t.trial.stack, []))) for t in data.trials)
    return replace(data, trials=trials)


def version(text: str) -> SettingRecord:
    return SettingRecord(name="server_version", setting=text, default=text, source="default")


def changed(name: str, setting: str, default: str) -> SettingRecord:
    return SettingRecord(name=name, setting=setting, default=default, source="configuration file")


def test_only_what_differs_is_in_the_table(data: CampaignData) -> None:
    table = setting_table(data)
    assert table is not None
    assert set(table.stacks) == {"ext4", "xfs", "btrfs", "tmpfs", "ext4-<script>alert(1)</script>"}
    (row,) = table.rows
    assert (row.name, row.default) == ("full_page_writes", "on")
    assert dict(zip(table.stacks, row.values, strict=True))["btrfs"] == "off"
    assert sorted(row.values) == ["off", "on", "on", "on", "on"]
    assert table.same == 2, "server_version and shared_buffers; where the data lies is no difference"


def test_a_server_of_that_version_without_a_record_of_a_setting_has_it_at_its_default(data: CampaignData) -> None:
    jit = changed("jit_above_cost", "5", "100000")
    table = setting_table(
        with_settings(data, {"ext4": [version("18.1"), jit], "xfs": [version("18.1")], "btrfs": [version("17.9")]})
    )
    assert table is not None
    rows = {row.name: dict(zip(table.stacks, row.values, strict=True)) for row in table.rows}
    assert rows["jit_above_cost"] == {"ext4": "5", "xfs": "100000", "btrfs": "n/a"}
    assert rows["server_version"]["btrfs"] == "17.9"


def test_one_stack_or_none_has_no_table(data: CampaignData) -> None:
    assert setting_table(with_settings(data, {})) is None
    assert setting_table(with_settings(data, {"ext4": [version("18.1")]})) is None


def test_a_setting_that_changed_from_trial_to_trial_shows_all_its_values(data: CampaignData) -> None:
    states = [[changed("work_mem", "8192", "4096")], [changed("work_mem", "4096", "4096")]]
    trials = [replace(t, settings=tuple(s)) for t, s in zip(data.trials, states, strict=False)]
    (row,) = stack_settings(trials)
    assert (row.value, row.default, row.changed) == ("8192 | 4096", "4096", True)


def test_changed_settings_come_first(data: CampaignData) -> None:
    (trial,) = with_settings(data, {}).trials[:1]
    rows = stack_settings([replace(trial, settings=(version("18.1"), changed("work_mem", "1", "2")))])
    assert [(row.name, row.changed) for row in rows] == [("work_mem", True), ("server_version", False)]


def test_what_was_left_out_of_a_postgresql_conf_is_on_the_page(data: CampaignData, findings: Findings) -> None:
    assert "Left out of its postgresql.conf" not in html_text(data, findings)
    reason = "it loads code into the server"
    planned = [t.planned.model_copy(update={"left_out": {"archive_command": reason}}) for t in data.trials]
    trials = tuple(replace(t, planned=one) for t, one in zip(data.trials, planned, strict=True))
    page = html_text(replace(data, trials=trials), findings)
    assert f'<th scope="row" class="mono">archive_command</th><td>{reason}</td>' in page
