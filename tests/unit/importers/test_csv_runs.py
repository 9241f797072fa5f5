"""CSV tables: what is taken, what is refused by line, what is counted."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from pgstrata.errors import UsageError
from pgstrata.importers.csv_runs import import_csv
from pgstrata.record.reader import read


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text(text)
    return path


GOOD = "stack,block,tps,latency_p99_ms,note_s\nxfs,1,100,4,9\next4,1,110,5,8\nxfs,2,102,4,9\next4,2,111,5,8\n"


def test_blocks_metrics_and_percentiles(tmp_path: Path) -> None:
    summary = import_csv(table(tmp_path, GOOD), tmp_path / "out", margin=0.05)
    assert (summary.stacks, summary.runs, dict(summary.rejected), summary.notices) == (("xfs", "ext4"), 4, {}, ())
    data = read(tmp_path / "out")
    assert data.record.paired
    assert data.campaign.goal.margin == 0.05
    got = [(c.stack, c.block, c.result.tps, c.result.percentiles_ms, c.result.extra) for c in data.cells()]
    assert got[0] == ("xfs", 0, 100.0, {"p99": 4.0}, {"note_s": 9.0})
    assert [(g[0], g[1], g[2]) for g in got[1:]] == [("ext4", 0, 110.0), ("xfs", 1, 102.0), ("ext4", 1, 111.0)]
    assert all(c.raw_names() == () for c in data.cells())
    assert (tmp_path / "out" / "source" / "runs.csv").read_text() == GOOD
    assert data.record.sources == {"runs.csv": hashlib.sha256(GOOD.encode()).hexdigest()}


def test_without_blocks_runs_are_unpaired(tmp_path: Path) -> None:
    summary = import_csv(table(tmp_path, "tps;stack\n1.5;a b\n2.5;a b\n"), tmp_path / "out")
    assert any("unpaired" in n for n in summary.notices)
    assert any("one stack only (a b)" in n for n in summary.notices)
    data = read(tmp_path / "out")
    assert not data.record.paired
    assert [(c.block, c.result.tps) for c in data.cells()] == [(0, 1.5), (1, 2.5)]


def test_grid_columns_make_cells(tmp_path: Path) -> None:
    text = "stack,block,scale,clients,script,tps\na,1,10,4,select-only,5\na,1,10,8,select-only,6\n"
    import_csv(table(tmp_path, text), tmp_path / "out")
    assert sorted(c.id for c in read(tmp_path / "out").cells()) == ["select-only-s10-c4", "select-only-s10-c8"]


def test_columns_of_texts_are_labels_of_the_runs(tmp_path: Path) -> None:
    text = "stack,block,tps,kernel,note\na,1,5,6.1.0,\nb,1,6,6.1.0,slow, after boot\n"
    import_csv(table(tmp_path, text.replace("slow, after boot", '"slow, after boot"')), tmp_path / "out")
    data = read(tmp_path / "out")
    assert [c.result.extra for c in data.cells()] == [{}, {}]
    told = [dict(t.facts.told) for t in data.trials if t.facts is not None]
    assert told == [
        {"kernel": "6.1.0", "source": "runs.csv"},
        {"kernel": "6.1.0", "note": "slow, after boot", "source": "runs.csv"},
    ]


@pytest.mark.parametrize(
    ("printed", "script"),
    [
        ("<builtin: TPC-B (sort of)>", "tpcb-like"),
        ("TPC-B (sort of)", "tpcb-like"),
        ("<builtin: simple update>", "simple-update"),
        ("<builtin: select only>", "select-only"),
        ("SELECT only", "select-only"),
        ("own.sql", "own.sql"),
    ],
)
def test_a_builtin_script_has_the_name_of_campaigns(tmp_path: Path, printed: str, script: str) -> None:
    import_csv(table(tmp_path, f"stack,script,scale,clients,tps\na,{printed},10,4,5\n"), tmp_path / "out")
    (cell,) = read(tmp_path / "out").cells()
    assert cell.cell.script == script


def test_byte_order_mark_quotes_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes(b'\xef\xbb\xbfstack,tps\r\n"xfs, tuned",3\r\n\r\n"say ""hi""",4\r\n')
    assert import_csv(path, tmp_path / "out").stacks == ("xfs, tuned", 'say "hi"')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("stack,block\na,1\n", "no column 'tps'"),
        ("stak,tps\na,1\n", "no column 'stack'(.|\n)*rename 'stak'"),
        ("stack,tps,latency_avg\na,1,2\n", "unknown column 'latency_avg'(.|\n)*'latency_avg_ms'"),
        ("stack,tps,tps\na,1,2\n", "'tps' is there twice"),
        ("stack,tps,\na,1,2\n", "column 3 has no name"),
        ("stack,tps\n", "no row with a run"),
        ("stack,tps\na,fast\n", "line 2: not a number: 'fast' in column 'tps'"),
        ('stack;tps\na;"1,5"\n', "use a point for decimals"),
        ('stack,tps\na,"17,339"\n', "without separators of thousands"),
        ('stack,tps\na,"1,017,339.5"\n', "without separators of thousands"),
        ("stack,tps\na,17\u00a0339\n", "without separators of thousands"),
        ("stack,tps\na,17'339\n", "without separators of thousands"),
        ("stack,tps\na,0\n", "line 2: tps is not positive: 0"),
        ("stack,tps\na,-3\n", "line 2: tps is not positive: -3"),
        ("stack,tps\na,nan\n", "line 2: not a finite number"),
        ("stack,tps\na,inf\n", "line 2: not a finite number"),
        ("stack,tps\na,1\nb\n", "line 3: wrong number of cells: 1 instead of 2"),
        ("stack,tps\n,1\n", "line 2: missing cell: column 'stack'"),
        ("stack,tps,x\na,1,5\nb,1,fast\n", "line 3: not a number: 'fast' in column 'x'"),
        ('stack,tps,x\na,1,"17,339"\n', "without separators of thousands"),
        ("stack,tps,x\na,1,n/a\n", "line 2: not a number: 'n/a'"),
        ("stack,block,tps\na,,1\n", "line 2: missing cell: column 'block'"),
        ("stack,block,tps\na,1.5,1\n", "line 2: not a whole number: '1.5' in column 'block'"),
        ("stack,block,tps\na,1,1\na,1,2\n", "line 3: duplicate run: stack 'a' in block 1, also in line 2"),
        ('stack,tps\n"a,1\n', "line"),
    ],
)
def test_faults_are_named_and_nothing_is_written(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        import_csv(table(tmp_path, text), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"3 bad rows(.|\n)*line 2(.|\n)*line 3(.|\n)*line 5"):
        import_csv(table(tmp_path, "stack,tps\na,x\nb,-1\nc,1\nd,\n"), tmp_path / "out")


def test_bad_rows_can_be_left_out_and_are_counted(tmp_path: Path) -> None:
    text = "stack,block,tps\na,1,1\na,1,2\nb,1,x\nb,2,y\nb,3,4\n"
    summary = import_csv(table(tmp_path, text), tmp_path / "out", skip_bad_rows=True)
    assert dict(summary.rejected) == {"duplicate run": 1, "not a number": 2}
    assert read(tmp_path / "out").record.rejected == dict(summary.rejected)
    assert "left out 2: not a number" in summary.text


def test_one_block_gives_a_notice(tmp_path: Path) -> None:
    summary = import_csv(table(tmp_path, "stack,block,tps\na,7,1\nb,7,2\n"), tmp_path / "out")
    assert summary.notices == ("there is one block only: single runs give no verdicts",)


def test_latin1_file_and_bad_margin_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes("stack,tps\nxfs-größer,1\n".encode("latin-1"))
    with pytest.raises(UsageError, match="not UTF-8"):
        import_csv(path, tmp_path / "out")
    with pytest.raises(UsageError, match="margin 0 is not between"):
        import_csv(path, tmp_path / "out", margin=0)


def test_an_import_is_not_added_to_a_campaign(tmp_path: Path) -> None:
    import_csv(table(tmp_path, GOOD), tmp_path / "out")
    with pytest.raises(UsageError, match="already holds a campaign"):
        import_csv(table(tmp_path, GOOD), tmp_path / "out")


def test_percentiles_that_differ_by_a_digit_are_metrics_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("stack,block,tps,latency_p90_ms,latency_p999_ms,latency_max_ms\na,1,10,1,2,3\nb,1,11,1,2,3\n")
    import_csv(path, tmp_path / "out")
    first = read(tmp_path / "out").trials[0].cells[0].result
    assert first.percentiles_ms == {"p90": 1.0, "p999": 2.0}
    assert first.extra == {"latency_max_ms": 3.0}


def test_scripts_that_would_share_a_cell_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("stack,block,script,tps\na,1,x y,10\nb,1,x_y,11\n")
    with pytest.raises(UsageError, match="both called x_y"):
        import_csv(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_table_is_kept_once_however_many_rows_it_has(tmp_path: Path) -> None:
    rows = [f"xfs,{block},100.{block}" for block in range(40)]
    text = "stack,block,tps\n" + "\n".join(rows) + "\n"
    import_csv(table(tmp_path, text), tmp_path / "out")
    copies = [p for p in (tmp_path / "out").rglob("*") if p.is_file() and p.read_bytes() == text.encode()]
    assert copies == [tmp_path / "out" / "source" / "runs.csv"]
    assert len(read(tmp_path / "out").trials) == 40


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("a\x1b[2J,1,5,1", "not a name"),
        ("a\u202e,1,5,1", "not a name"),
        (f"{'a' * 2000},1,5,1", "not a name"),
        ("a,1e300,5,1", "too large"),
        ("a,1,1e300,1", "too large"),
        ("a,1,5,-1e300", "too large"),
    ],
)
def test_cells_that_no_record_could_hold_are_faults_of_their_line(tmp_path: Path, row: str, reason: str) -> None:
    with pytest.raises(UsageError, match=f"line 2: {reason}"):
        import_csv(table(tmp_path, f"stack,block,tps,own\n{row}\n"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_more_stacks_than_a_campaign_may_have(tmp_path: Path) -> None:
    rows = "".join(f"s{n},1,5\n" for n in range(1001))
    with pytest.raises(UsageError, match="the runs make no campaign: stacks"):
        import_csv(table(tmp_path, f"stack,block,tps\n{rows}"), tmp_path / "out")


def test_a_run_of_centuries_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a run has duration_s = "):
        import_csv(table(tmp_path, "stack,block,tps,duration_s\na,1,5,1e12\n"), tmp_path / "out")


def test_rows_with_the_very_same_figures_are_counted(tmp_path: Path) -> None:
    once = import_csv(table(tmp_path, "stack,block,tps\na,1,7\na,2,7\nb,1,8\nb,2,9\n"), tmp_path / "one")
    assert once.notices == ("1 row is there more than once with the very same figures (stack a): kept",)
    both = import_csv(table(tmp_path, "stack,block,tps\na,1,7\na,2,7\nb,1,8\nb,2,8\n"), tmp_path / "two")
    assert both.notices == ("2 rows are there more than once with the very same figures (stack a): kept",)
