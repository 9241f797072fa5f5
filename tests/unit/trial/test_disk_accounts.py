"""What a run records of modelled disks: the difference of two readings of their accounts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pgstrata.errors import TrialError
from pgstrata.stack.disk_counters import DiskCounts
from pgstrata.trial.steps.disk_accounts import disks_used, refuse_untimed, summed_use

BEFORE = DiskCounts(
    model="hdd-7200",
    parameters={"rotation_rpm": 7200.0},
    stretch=2.0,
    timing=True,
    elapsed_s=10.0,
    reads=5,
    writes=100,
    zeroes=1,
    flushes=50,
    errors=0,
    read_bytes=40960,
    written_bytes=819200,
    queued_s=4.0,
    busy_s=3.0,
    seeks=7,
    seek_s=0.5,
    late_percent_counts=(3, 1, 0),
    untimed=40,
)


def test_only_what_happened_in_between_counts() -> None:
    after = replace(BEFORE, elapsed_s=14.0, writes=130, flushes=65, seeks=9, busy_s=5.0, late_percent_counts=(10, 1, 2))
    (used,) = disks_used({"data.0": BEFORE}, {"data.0": after})
    assert (used.disk, used.model, used.stretch) == ("data.0", "hdd-7200", 2.0)
    assert (used.elapsed_s, used.reads, used.writes, used.flushes, used.seeks) == (4.0, 0, 30, 15, 2)
    assert used.busy_s == 2.0
    assert used.untimed == 0
    assert used.late_percent_counts == (7, 0, 2)


def test_disks_keep_their_order() -> None:
    before = {f"data.{i}": BEFORE for i in range(3)}
    after = {name: replace(counts, elapsed_s=11.0) for name, counts in before.items()}
    assert [used.disk for used in disks_used(before, after)] == ["data.0", "data.1", "data.2"]


def test_a_run_part_of_which_took_no_time_of_the_medium_is_refused() -> None:
    used = disks_used({"data.0": BEFORE}, {"data.0": replace(BEFORE, elapsed_s=11.0, untimed=43)})
    with pytest.raises(TrialError, match=r"modelled disk data\.0 answered 3 requests of the run without its timing"):
        refuse_untimed(used)
    refuse_untimed(disks_used({"data.0": BEFORE}, {"data.0": replace(BEFORE, elapsed_s=11.0)}))


def test_turns_add_up() -> None:
    first = disks_used({"data.0": BEFORE}, {"data.0": replace(BEFORE, elapsed_s=14.0, writes=130, busy_s=5.0)})
    (both,) = summed_use(summed_use((), first), first)
    assert (both.disk, both.model, both.stretch) == ("data.0", "hdd-7200", 2.0)
    assert (both.elapsed_s, both.writes, both.busy_s) == (8.0, 60, 4.0)
    assert both.late_percent_counts == (0, 0, 0)
