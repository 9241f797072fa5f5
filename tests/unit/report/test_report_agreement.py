"""Published and measured ratios: agree, differ, or cannot be told; the committed page is that of the reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scipy.stats import spearmanr

from pgstrata.analyze.findings import DiskFinding, PublishedFinding
from pgstrata.errors import RecordError
from pgstrata.report.tables.agreement import rank_correlation, read_report, table_lines, with_outcomes
from pgstrata_docs.outcomes import RESULTS, render_outcomes
from typed import typed


def row(stack: str, ratio: float | None, measured: float | None, *bounds: float) -> PublishedFinding:
    low, high = bounds or (None, None)
    return PublishedFinding(
        study="s", stack=stack, cell="c", metric="tps", value=None, baseline="base", ratio=ratio,
        measured_ratio=measured, measured_low=low, measured_high=high,
    )  # fmt: skip


def disk(busy: float, flushes: float) -> DiskFinding:
    return DiskFinding(
        disk="d", model="hdd-7200", stretch=1, runs=3, reads_per_s=1, writes_per_s=1, flushes_per_s=1,
        flushes_per_transaction=flushes, seeks_per_transaction=0, queue=1, busy_share=busy, seek_share=0, errors=0,
        late_median_percent=0, late_p99_percent=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ratio", "measured", "bounds", "outcome"),
    [
        (2.0, 2.1, (1.9, 2.3), "agrees"),  # all of it is within a factor of 1.2
        (2.0, 2.3, (1.95, 2.7), "agrees"),  # includes it, and spans a factor of 1.38
        (2.0, 2.3, (1.5, 3.0), "cannot be told"),  # includes it, and anything else
        (2.0, 2.5, (2.1, 3.0), "cannot be told"),  # some of it is within a factor of 1.2
        (2.0, 1.5, (1.3, 1.6), "differs"),
        (2.0, 2.8, (2.5, 3.1), "differs"),
        (2.0, 2.0, (), "cannot be told"),
        (None, 2.0, (1.9, 2.1), "cannot be told"),
    ],
)
def test_an_outcome_is_that_of_the_interval(
    ratio: float | None, measured: float, bounds: tuple[float, ...], outcome: str
) -> None:
    (found,) = with_outcomes([row("x", ratio, measured, *bounds)], {})
    assert found.outcome == outcome
    assert bool(found.reason) == (outcome != "agrees")


def test_a_difference_has_its_reason_from_the_disks_and_the_fastest_arm() -> None:
    rows = [row("base", 1.0, 1.0), row("memory", 50.0, 9.0, 8.0, 10.0), row("x", 3.0, 1.0, 0.9, 1.1)]
    disks = {("c", "base"): (disk(0.99, 1.0),), ("c", "x"): (disk(0.5, 2.0), disk(0.97, 2.5))}
    base, memory, x = with_outcomes(rows, disks)
    assert (base.outcome, base.reason) == (None, "")
    assert memory.reason == (
        "no arm reaches more than 9× here (memory); memory has no disk, "
        "the disk of base is busy 99% of the time with 1 flushes a transaction"
    )
    assert x.reason == (
        "the disk of x is busy 97% of the time with 2.50 flushes a transaction, "
        "the disk of base is busy 99% of the time with 1 flushes a transaction"
    )


def test_rank_correlation_is_that_of_scipy_with_an_interval_that_holds_it() -> None:
    published, measured = [1.0, 2.0, 2.0, 5.0, 20.0, 25.0], [1.0, 0.8, 1.5, 4.0, 6.0, 3.0]
    found = rank_correlation([row(str(at), p, m) for at, (p, m) in enumerate(zip(published, measured, strict=True))])
    assert found is not None
    assert found[0] == pytest.approx(spearmanr(published, measured).statistic)
    assert -1 < found[1] < found[0] < found[2] < 1
    assert rank_correlation([row(str(at), 1.0, m) for at, m in enumerate(measured)]) is None
    assert rank_correlation([row(str(m), m, m) for m in measured]) is None


def test_the_committed_page_is_that_of_the_reports() -> None:
    assert (RESULTS / "outcomes.md").read_text(encoding="utf-8") == render_outcomes(), "run: make docs"


def test_the_verb_prints_the_table_of_a_report(tmp_path: Path) -> None:
    file = RESULTS / "filesystems-hdd.modelled.json"
    shown = typed("studies", "table", str(file), cwd=tmp_path)
    assert shown.returncode == 0
    assert "\n".join(table_lines(read_report(file))) in shown.stdout
    (told,) = json.loads(typed("studies", "table", str(file), "--json", cwd=tmp_path).stdout)
    assert {arm["stack"]: arm["outcome"] for arm in told["arms"]}["tmpfs"] == "differs"


@pytest.mark.parametrize(
    ("text", "said"), [("{}", "is no JSON report of a campaign"), ("x", "is no JSON report"), (None, "No such file")]
)
def test_what_is_no_report_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "report.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(RecordError, match=said):
        read_report(file)
