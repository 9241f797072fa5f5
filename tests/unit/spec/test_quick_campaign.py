"""Quick campaigns fit their budget and say when nothing does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pgstrata.analyze.stats.detectable_difference import smallest_shown
from pgstrata.errors import UsageError
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.notation.stack import render_stack
from pgstrata.spec.quick import (
    MIN_BLOCKS,
    MIN_DURATION_S,
    SCALES,
    QuickDesign,
    overhead_s,
    plan_design,
    quick_campaign,
)


def quick(stacks: Sequence[str], **options: Any) -> Campaign:
    return quick_campaign(stacks, smallest_shown, **options)


@pytest.mark.parametrize("minutes", [3, 5, 10, 30, 120, 600])
@pytest.mark.parametrize("stacks", [1, 2, 4])
def test_the_layout_fits_the_budget_and_has_bounds(minutes: float, stacks: int) -> None:
    layout = plan_design(stacks, minutes, SCALES, smallest_shown)
    each_s = layout.duration_s + layout.warmup_s
    overheads_s = sum(overhead_s(layout.scale, fresh=b < layout.fresh_blocks) for b in range(layout.blocks))
    assert stacks * (overheads_s + layout.blocks * each_s) <= minutes * 60
    assert layout.duration_s >= MIN_DURATION_S
    assert stacks == 1 or math.isfinite(smallest_shown(stacks, layout.blocks, layout.duration_s))


@pytest.mark.parametrize("stacks", [2, 4, 6])
def test_more_time_shows_smaller_differences(stacks: int) -> None:
    layouts = [plan_design(stacks, minutes, (5,), smallest_shown) for minutes in range(4, 100, 6)]
    shown = [smallest_shown(stacks, layout.blocks, layout.duration_s) for layout in layouts]
    assert all(later <= 1.01 * before for before, later in pairwise(shown)), shown


@pytest.mark.parametrize(("clients", "least"), [(None, 8), (16, 16), (40, 40)])
def test_clients_do_not_outnumber_branches_where_that_can_be(clients: int | None, least: int) -> None:
    """Else they wait for one another's rows, and storage is not what is compared."""
    assert quick(["ext4", "xfs"], minutes=10, clients=clients).workload.scale[0] >= least
    assert not quick(["ext4", "xfs"], minutes=10, clients=clients).workload.crowded
    tight = quick(["ext4", "xfs", "btrfs", "tmpfs", "xfs:noatime", "ext4:noatime"], minutes=3).workload
    assert [cell.clients for cell in tight.crowded] == [8], "an answer with bounds goes first"


def test_no_other_number_of_blocks_would_show_more() -> None:
    """By whatever `shows` says: the design follows the statistics that it is given."""

    def best_with(blocks: int) -> QuickDesign:
        return plan_design(2, 30, (10,), lambda _, count, __: abs(count - blocks) + 1.0)

    assert [best_with(n).blocks for n in (7, 19, 33)] == [7, 19, 33]


@pytest.mark.parametrize("stacks", [4, 8])
def test_a_budget_that_cannot_do_is_refused_with_what_would(stacks: int) -> None:
    names = [f"ext4:commit={n}" for n in range(1, stacks + 1)]
    with pytest.raises(UsageError, match=f"1 min is too short for {stacks} stacks") as caught:
        quick(names, minutes=1)
    minutes = float(caught.value.hint.split()[1].rstrip(","))
    assert quick(names, minutes=minutes).runs.budget == minutes * 60
    with pytest.raises(UsageError):
        quick(names, minutes=minutes - 1)


def test_more_minutes_go_on_with_what_was_begun() -> None:
    names = ["ext4", "xfs", "btrfs", "tmpfs"]
    short = quick(names, minutes=4)
    longer = quick(names, minutes=60, begun=short)
    assert longer.workload == short.workload != quick(names, minutes=60).workload
    assert longer.runs.fresh_blocks == short.runs.fresh_blocks
    assert longer.runs.max_blocks > short.runs.max_blocks
    assert longer.runs.budget == 3600
    assert quick(names, minutes=4, begun=short) == short
    assert quick(names, minutes=60, begun=short, scale=50).workload.scale == (50,), "refused by the recorder"


def test_a_quick_campaign() -> None:
    campaign = quick(
        ["ext4", "xfs:noatime", "tmpfs"], minutes=20, scale=10, clients=4, scratch="/srv/x", seed=9, margin="5%"
    )
    assert [s.name for s in campaign.stacks] == ["ext4", "xfs:noatime", "tmpfs"]
    assert (campaign.workload.scale, campaign.workload.clients) == ((10,), (4,))
    assert (campaign.runs.budget, campaign.goal.kind, campaign.goal.margin) == (1200.0, "best", 0.05)
    assert (campaign.scratch, campaign.seed) == ("/srv/x", 9)


def test_a_check_of_the_method() -> None:
    assert [s.name for s in quick(["ext4", "xfs"], aa=True).stacks] == ["ext4", "ext4 (A/A)", "xfs"]


def test_settings_of_all_stacks_give_way_to_a_stacks_own() -> None:
    common = {"source": "embedded", "settings": {"fsync": "off", "jit": "off"}}
    campaign = quick(["ext4", "xfs@fsync=on"], postgresql=common)
    assert [render_stack(s) for s in campaign.stacks] == [
        "ext4@source=embedded@fsync=off@jit=off", "xfs@source=embedded@fsync=on@jit=off",
    ]  # fmt: skip


def test_disks_are_dealt_to_what_needs_them() -> None:
    campaign = quick(
        ["ext4", "md(raid1)/xfs", "md(raid0,2)/ext4@wal=xfs", "tmpfs", "disk(z)/xfs"], devices=["a", "b", "c"]
    )
    assert [render_stack(s) for s in campaign.stacks] == [
        "disk(a)/ext4", "disk(a,b,c)/md(raid1)/xfs", "disk(a,b)/md(raid0)/ext4@wal=disk(c)/xfs", "tmpfs", "disk(z)/xfs",
    ]  # fmt: skip


def test_a_model_is_put_below_what_needs_a_device_and_names_none() -> None:
    campaign = quick(["ext4", "md(raid5,6)/xfs@wal=ext4", "tmpfs", "loop(size=2g)/xfs"], media="hdd-7200")
    assert [render_stack(s) for s in campaign.stacks] == [
        "media(hdd-7200)/ext4", "media(hdd-7200,6)/md(raid5)/xfs@wal=media(hdd-7200)/ext4", "tmpfs",
        "loop(size=2g)/xfs",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("stacks", "options", "message"),
    [
        ([], {}, "no stack is named"),
        (["ext4", "ext4"], {}, "'ext4' is named twice"),
        (["exft4"], {}, "unknown filesystem"),
        (["ext4"], {"margin": 0}, "goal.margin"),
        (["ext4"], {"margin": "two"}, "'two' is not a share"),
        (["ext4@wal=xfs"], {"devices": ["a"]}, "needs more devices"),
        (["ext4"], {"media": "hdd-1"}, "data.device.model"),
        (["ext4"], {"media": "nvme", "devices": ["a"]}, "exclude each other"),
        (["ext4"], {"clients": -1}, "at least 1"),
        (["ext4@postgresql_conf=none.conf"], {}, "file none.conf does not exist"),
    ],
)
def test_what_is_refused(stacks: list[str], options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        quick(stacks, **options)


def test_a_given_length_and_number_of_blocks_are_kept() -> None:
    by_length = plan_design(2, 12, SCALES, smallest_shown, duration_s=40.0)
    assert by_length.duration_s == 40.0
    assert by_length.blocks >= MIN_BLOCKS
    by_blocks = plan_design(2, 10, SCALES, smallest_shown, blocks=7)
    assert by_blocks.blocks == 7
    both = plan_design(2, 30, (10,), smallest_shown, duration_s=40.0, blocks=5)
    assert (both.scale, both.blocks, both.duration_s) == (10, 5, 40.0)
    with pytest.raises(UsageError, match=r"9 blocks take about") as error:
        plan_design(2, 5, SCALES, smallest_shown, duration_s=40.0, blocks=9)
    assert "--minutes" in error.value.hint


def test_what_minutes_are_asked_for_is_enough() -> None:
    with pytest.raises(UsageError) as error:
        plan_design(2, 1, (1,), smallest_shown, duration_s=40.0, blocks=9)
    minutes = int(error.value.hint.split("--minutes ")[1].split(",")[0])
    assert plan_design(2, minutes, (1,), smallest_shown, duration_s=40.0, blocks=9).blocks == 9


def test_scripts_databases_and_settings_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "own.sql").write_text("SELECT 1;\n")
    (tmp_path / "database.sql").write_text("CREATE TABLE t ();\n")
    (tmp_path / "postgresql.conf").write_text("work_mem = 8MB\n")
    made = quick(
        ["ext4", "xfs@work_mem=1MB"],
        workload={"script": str(tmp_path / "own.sql"), "sql": str(tmp_path / "database.sql")},
        blocks=4,
        postgresql={"postgresql_conf": str(tmp_path / "postgresql.conf")},
    )
    assert made.workload.script == (str(tmp_path / "own.sql"),)
    assert made.workload.sql == str(tmp_path / "database.sql")
    assert made.workload.scale == (1,)
    assert made.runs.blocks == 4
    assert {s.postgresql.postgresql_conf for s in made.stacks} == {str(tmp_path / "postgresql.conf")}
    assert made.stacks[1].postgresql.settings == {"work_mem": "1MB"}
    with pytest.raises(UsageError, match="does not exist"):
        quick(["ext4"], workload={"script": "nowhere.sql"})


@pytest.mark.parametrize(
    ("stacks", "tablespace"),
    [
        (["ext4", "ext4@tablespace.fast=xfs"], "fast"),
        (["ext4@tablespace.a=xfs", "ext4@tablespace.b=xfs"], None),
        (["ext4"], None),
    ],
)
def test_the_only_tablespace_of_the_stacks_takes_the_tables(stacks: list[str], tablespace: str | None) -> None:
    assert quick(stacks).workload.tablespace == tablespace
