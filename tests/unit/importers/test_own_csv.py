"""`report --format csv` and `import csv` are each other's inverse, but for what the table does not hold."""

from __future__ import annotations

import csv
import io
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pgstrata.analyze.campaign.judge import judge
from pgstrata.analyze.campaign.statements import Choice
from pgstrata.errors import UsageError
from pgstrata.importers.csv_runs import import_csv
from pgstrata.record.reader import CampaignData, read
from pgstrata.record.schema import COLUMNS
from pgstrata.report.render import render_csv
from pgstrata_fake.campaigns import NASTY, Shape, write_campaign

pytestmark = pytest.mark.slow

NOT_KEPT = ("trial", "position", "stage", "reason")
"""Trials are counted anew, and nothing of an import is confirmed."""

NAMES = ("ext4", "xfs", NASTY, "=1+1", 'a, "b"')
shapes = st.builds(
    Shape,
    stacks=st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True).map(tuple),
    blocks=st.integers(1, 3),
    duration_s=st.just(2),
    scales=st.sampled_from([(50,), (1, 50)]),
    clients=st.sampled_from([(8,), (1, 8)]),
    seed=st.integers(0, 99),
    matched_rates=st.sampled_from([(), (900.5,)]),
    soak_s=st.sampled_from([0, 3]),
)


def rows(text: str) -> list[dict[str, str]]:
    """Of runs that count, without what is not kept, in an order of their own."""
    found = [{k: v for k, v in row.items() if k not in NOT_KEPT} for row in csv.DictReader(io.StringIO(text))]
    return sorted((row for row in found if row["status"] == "ok"), key=lambda row: sorted(row.items()))


def imported(data: CampaignData, folder: Path) -> CampaignData:
    path = folder / "runs.csv"
    path.write_text(render_csv(data), encoding="utf-8")
    import_csv(path, folder / "imported")
    return read(folder / "imported")


@settings(max_examples=3, deadline=None, derandomize=True, phases=(Phase.generate,))
@given(shapes)
def test_the_same_cells_runs_and_metrics_come_back(shape: Shape) -> None:
    with tempfile.TemporaryDirectory() as name:
        data = read(write_campaign(Path(name) / "made", shape))
        again = imported(data, Path(name))
        assert rows(render_csv(again)) == rows(render_csv(data))
        assert sorted(c.id for c in again.cells()) == sorted(c.id for c in data.cells())
        assert sum(again.record.rejected.values()) == sum(max(1, len(t.cells)) for t in data.trials if not t.valid)
        twice = imported(again, Path(name) / "imported")
        assert rows(render_csv(twice)) == rows(render_csv(data))


def durable(data: CampaignData) -> dict[str, str]:
    return {stack.name: stack.durability.class_ for stack in judge(data).stacks}


def chosen(data: CampaignData) -> list[tuple[str, str | None]]:
    statements = (s for cell in judge(data).cells for s in cell.statements)
    return [(s.subject, s.class_) for s in statements if isinstance(s, Choice)]


SHAPE = Shape(
    stacks=("ext4", "xfs(async)", "tmpfs"), blocks=4, duration_s=2, incidents=False, base_tps={"tmpfs": 9000.0}
)


def test_a_table_taken_back_crowns_no_stack_that_loses_data(tmp_path: Path) -> None:
    data = read(write_campaign(tmp_path / "made", SHAPE))
    again = imported(data, tmp_path)
    assert durable(again) == durable(data)
    assert set(durable(data).values()) >= {"survives power loss", "loses on power loss"}
    (made,), (taken,) = chosen(data), chosen(again)
    assert made[1] == taken[1] == "survives power loss"
    assert "tmpfs" not in (made[0], taken[0])


def test_a_table_of_an_earlier_version_is_taken_back_without_durability(tmp_path: Path) -> None:
    data = read(write_campaign(tmp_path / "made", SHAPE))
    earlier = list(csv.reader(io.StringIO(render_csv(data))))
    at = COLUMNS.index("durability")
    with (tmp_path / "earlier.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([*row[:at], *row[at + 1 :]] for row in earlier)
    import_csv(tmp_path / "earlier.csv", tmp_path / "imported")
    again = read(tmp_path / "imported")
    assert sorted(c.id for c in again.cells()) == sorted(c.id for c in data.cells())
    assert set(durable(again).values()) == {"unknown"}


TABLE = "stack,tps,position,load_s,Fsync_MS\nxfs,100,3,7,1\nxfs,101,4,8,2\next4,90,5,9,3\n"


def test_metrics_of_an_import_and_unpaired_runs_come_back(tmp_path: Path) -> None:
    """Also those that are called like a column of the table."""
    (tmp_path / "first.csv").write_text(TABLE)
    import_csv(tmp_path / "first.csv", tmp_path / "first")
    first = read(tmp_path / "first")
    again = imported(first, tmp_path)
    assert not again.record.paired
    extras = [(c.stack, c.block, c.result.tps, c.result.extra) for c in again.cells()]
    assert extras == [(c.stack, c.block, c.result.tps, c.result.extra) for c in first.cells()]
    assert extras[0][3] == {"position": 3.0, "load_s": 7.0, "fsync_ms": 1.0}


def test_a_row_that_was_changed_is_named(tmp_path: Path) -> None:
    data = read(write_campaign(tmp_path / "made", Shape(stacks=("xfs",), blocks=1, duration_s=2, incidents=False)))
    head, row = render_csv(data).splitlines()
    at = COLUMNS.index("transactions")
    cells = row.split(",")
    for text, message in (("many", "transactions: "), ("-1", "transactions: ")):
        spoilt = ",".join([*cells[:at], text, *cells[at + 1 :]])
        (tmp_path / "x.csv").write_text(f"{head}\n{spoilt}\n")
        with pytest.raises(UsageError, match=f"line 2 is no row that pgstrata wrote: {message}"):
            import_csv(tmp_path / "x.csv", tmp_path / "x")
    (tmp_path / "x.csv").write_text(f"{head}\n{row.replace('survives power loss', 'survives fire')}\n")
    with pytest.raises(UsageError, match="line 2 is no row that pgstrata wrote: "):
        import_csv(tmp_path / "x.csv", tmp_path / "x")
    (tmp_path / "x.csv").write_text(f"{head}\n{row},1\n")
    with pytest.raises(UsageError, match="cells instead of"):
        import_csv(tmp_path / "x.csv", tmp_path / "x")


def test_a_table_without_a_run_is_refused(tmp_path: Path) -> None:
    data = read(write_campaign(tmp_path / "made", Shape(stacks=("xfs",), blocks=1, duration_s=2, incidents=False)))
    failed = replace(data, trials=tuple(replace(t, cells=()) for t in data.trials))
    with pytest.raises(UsageError, match="no row with a run"):
        imported(failed, tmp_path)
