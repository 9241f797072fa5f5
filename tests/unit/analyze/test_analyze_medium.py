"""A medium that is not what it was when the campaign began is told in every report."""

from __future__ import annotations

import pytest

from pgstrata.analyze.why.medium import medium_notices
from pgstrata.record.schema import MediumRecord


def baseline(block: int, flushes: float | None, medium: str = "ext4 on /dev/vda", **other: object) -> MediumRecord:
    value = {"at": "2026-01-01", "before_block": block, "medium": medium, "seconds": 2.0, "flushes_by": "pg_test_fsync"}
    return MediumRecord.model_validate({**value, "flushes_per_s": flushes, **other})


@pytest.mark.parametrize("later", [9800.0, 5000.0, 19000.0])
def test_what_varies_as_disks_do_is_no_change(later: float) -> None:
    assert list(medium_notices([baseline(0, 9800.0), baseline(6, later)])) == []


def test_a_change_names_the_rates_and_the_blocks() -> None:
    found = list(medium_notices([baseline(0, 9800.0), baseline(6, 2100.0), baseline(9, 2000.0)]))
    assert found == [
        "the medium did not stay the same: 9,800 flushes a second before block 0, 2,100 flushes a second before block 6"
    ]


def test_another_device_is_a_change_whatever_its_rates() -> None:
    (found,) = medium_notices([baseline(0, 9800.0), baseline(6, 100.0, "ext4 on /dev/vdb")])
    assert "ext4 on /dev/vda before block 0, ext4 on /dev/vdb before block 6" in found


@pytest.mark.parametrize(
    "later",
    [
        baseline(6, None),
        baseline(6, 100.0, flushes_by="fio"),
        baseline(6, 100.0, seconds=0.1),
        baseline(6, 0.0),
    ],
)
def test_what_does_not_compare_is_not_compared(later: MediumRecord) -> None:
    assert list(medium_notices([baseline(0, 9800.0), later])) == []


def test_sequential_rates_are_told_in_megabytes() -> None:
    media = [baseline(0, None, sequential_read_bytes_per_s=2e9), baseline(1, None, sequential_read_bytes_per_s=5e8)]
    (found,) = medium_notices(media)
    assert "2,000 MB/s of sequential reads before block 0, 500 MB/s of sequential reads before block 1" in found


def test_a_campaign_without_baselines_says_nothing() -> None:
    assert list(medium_notices([])) == []
    assert list(medium_notices([baseline(0, 1.0)])) == []


def check(block: int, flushes: float | None) -> MediumRecord:
    return baseline(block, flushes, kind="check", flushes_by="fio", seconds=1.0)


def test_checks_are_told_once_by_the_two_that_differ_most() -> None:
    rates = {0: 900.0, 1: 1000.0, 2: None, 3: 2400.0, 4: 500.0, 5: 1900.0}
    found = list(medium_notices([baseline(0, 9800.0), *(check(block, rate) for block, rate in rates.items())]))
    assert found == [
        "the medium did not stay the same: 2,400 flushes a second before block 3, 500 flushes a second before block 4"
    ]


def test_checks_that_agree_say_nothing() -> None:
    assert list(medium_notices([check(0, 900.0), check(1, 1700.0)])) == []
    assert list(medium_notices([check(0, None)])) == []
