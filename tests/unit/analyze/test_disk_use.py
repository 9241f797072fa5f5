"""What modelled disks did over the runs of a stack."""

from __future__ import annotations

import pytest

from pgstrata.analyze.why.use import disk_findings, late_disks, late_percent
from pgstrata.record.schema import CellResult, DiskUse
from pgstrata.report.sentences.statements import sentence, tone_of
from pgstrata.spec.workload import Cell

USE = DiskUse(
    disk="data.0",
    model="hdd-7200",
    elapsed_s=10.0,
    reads=20,
    writes=400,
    zeroes=0,
    flushes=300,
    errors=0,
    read_bytes=0,
    written_bytes=0,
    queued_s=5.0,
    busy_s=9.0,
    seeks=600,
    seek_s=2.5,
    late_percent_counts=(90, 9, 1),
)


def result(transactions: int, *disks: DiskUse) -> CellResult:
    cell = Cell(script="tpcb-like", scale=1, clients=1)
    return CellResult(
        cell=cell, started="", duration_s=10, transactions=transactions, tps=transactions / 10, disks=disks
    )


def test_figures_are_sums_over_the_runs() -> None:
    (found,) = disk_findings([result(100, USE), result(200, USE.model_copy(update={"flushes": 600}))])
    assert (found.runs, found.flushes_per_transaction, found.seeks_per_transaction) == (2, 3.0, 4.0)
    assert (found.reads_per_s, found.writes_per_s, found.flushes_per_s) == (2.0, 40.0, 45.0)
    assert (found.queue, found.busy_share, found.seek_share) == (0.5, 0.9, 0.25)
    assert (found.late_median_percent, found.late_p99_percent) == (0, 1)


def test_what_cannot_be_divided_is_not_known() -> None:
    (found,) = disk_findings([result(0, USE.model_copy(update={"late_percent_counts": ()}))])
    assert found.flushes_per_transaction is None
    assert found.late_median_percent is None


def test_disks_without_an_account_give_nothing() -> None:
    assert disk_findings([result(5)]) == ()


def late(median: int, p99: int) -> tuple[int, ...]:
    """Of 100 answers, 60 late by one percentage and 40 by another."""
    counts = [0] * 101
    counts[median] += 60
    counts[p99] += 40
    return tuple(counts)


@pytest.mark.parametrize(("median", "p99", "told"), [(5, 20, False), (6, 20, True), (5, 21, True), (0, 100, True)])
def test_disks_that_are_late_beyond_what_a_model_may_be_are_told(median: int, p99: int, told: bool) -> None:
    slow = USE.model_copy(update={"disk": "data.1", "late_percent_counts": late(median, p99)})
    found = list(late_disks("xfs", disk_findings([result(100, USE, slow)])))
    assert [(one.models, one.median_percent, one.p99_percent) for one in found] == [(("hdd-7200",), median, p99)] * told


def test_the_sentence_on_late_disks_names_stack_model_and_figures() -> None:
    slow = USE.model_copy(update={"late_percent_counts": late(18, 100)})
    (statement,) = late_disks("xfs", disk_findings([result(100, slow)]))
    text = sentence(statement)
    assert text.startswith("Disks of `xfs` answered later than the model has it (hdd-7200): half of the answers by")
    assert "by up to 18 % of their time, one in a hundred by up to 100 % and more." in text
    assert tone_of(statement) == "stalls"


def test_disks_without_answers_are_not_late() -> None:
    none = USE.model_copy(update={"late_percent_counts": ()})
    assert list(late_disks("xfs", disk_findings([result(5, none)]))) == []


def test_lateness_is_taken_over_all_runs() -> None:
    later = USE.model_copy(update={"late_percent_counts": (0, 0, 0, 300)})
    assert late_percent([USE, later], 0.5) == 3
    assert late_percent([], 0.5) is None
