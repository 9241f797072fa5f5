"""Mixes from pg_stat_statements: which statements become scripts, with which parameters, and what is left out."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from pgstrata.capture.statements import (
    Draw,
    Statement,
    make_mix,
    read_statements,
    render_draws,
    render_script,
    write_mix,
)
from pgstrata.errors import PgstrataError, UsageError
from pgstrata.spec.scripts import parse_scripts

BY_KEY = "SELECT name FROM item WHERE id = $1"
JOINED = "select o.* FROM shop.orders o, item AS i where o.item = i.id AND i.name = $1 AND o.state IN ($2, $3) LIMIT $4"
HEAD = ("userid", "dbid", "toplevel", "query", "calls", "total_exec_time", "rows")


def one(query: str, *, calls: int = 10, time_ms: float = 100.0, rows: int = 70) -> Statement:
    return Statement(query, calls, time_ms, rows)


def statements(path: Path, *rows: tuple[object, ...], head: tuple[str, ...] = HEAD) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([head, *rows])
    return path


def test_parameters_come_from_their_columns() -> None:
    mix = make_mix([one(BY_KEY, calls=30), one(JOINED, calls=10)])
    by_key, joined = sorted(mix.parts, key=lambda part: -part.weight)
    assert (by_key.weight, joined.weight) == (75_000, 25_000)
    assert by_key.draws == {1: Draw("item", "id", 0)}
    assert joined.draws == {
        1: Draw("item", "name", 0),
        2: Draw("shop.orders", "state", 0),
        3: Draw("shop.orders", "state", 1),
    }
    assert joined.constants == {4: 7}
    assert render_script(joined).endswith("i.name = :p1 AND o.state IN (:p2, :p3) LIMIT 7;\n")
    assert mix.covered == pytest.approx(1)


def test_an_update_draws_what_it_sets_and_whom_it_meets_from_one_row() -> None:
    (part,) = make_mix([one("UPDATE item SET price = price + $1, name = $2 WHERE id = $3;")]).parts
    assert part.draws == {1: Draw("item", "price", 0), 2: Draw("item", "name", 0), 3: Draw("item", "id", 0)}
    assert "SELECT price AS p1, name AS p2, id AS p3 FROM item" in render_draws(make_mix([part.statement]))


def test_a_statement_without_parameters_is_its_own_script() -> None:
    mix = make_mix([one("SELECT count(*) FROM item;")])
    assert render_script(mix.parts[0]) == "SELECT count(*) FROM item;\n"
    assert "CREATE TABLE" not in render_draws(mix)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("INSERT INTO item VALUES ($1)", "INSERT"),
        ("/* app */ DELETE FROM item WHERE id = $1", "DELETE"),
        ("WITH a AS (SELECT $1) SELECT * FROM a", "WITH"),
        ("BEGIN", "no SELECT and no UPDATE"),
        ("SELECT * FROM item WHERE id BETWEEN $1 AND $2", "no column's value"),
        ("SELECT * FROM item WHERE id <= $1", "no column's value"),
        ("SELECT * FROM item WHERE lower(name) = $1", "no column's value"),
        ("SELECT * FROM item, orders o WHERE price = $1", "column without its table"),
        ("SELECT * FROM item WHERE x.id = $1", "column without its table"),
    ],
)
def test_what_cannot_be_drawn_is_left_out_with_its_share(query: str, reason: str) -> None:
    mix = make_mix([one(BY_KEY, time_ms=300), one(query, time_ms=100)])
    assert [part.statement.query for part in mix.parts] == [BY_KEY]
    assert mix.covered == pytest.approx(0.75)
    ((why, share),) = mix.left_out.items()
    assert reason in why
    assert share == pytest.approx(0.25)


def test_a_mix_without_scripts_is_refused() -> None:
    with pytest.raises(UsageError, match=r"100\.0% INSERT"):
        make_mix([one("INSERT INTO item VALUES ($1)")])
    with pytest.raises(UsageError, match="no rows"):
        make_mix([])


def test_nested_statements_are_in_the_time_of_their_caller(tmp_path: Path) -> None:
    file = statements(tmp_path / "s.csv", (1, 5, "t", BY_KEY, 3, "1.5", 3), (1, 5, "f", BY_KEY, 9, "9", 9))
    assert read_statements(file) == [Statement(BY_KEY, 3, 1.5, 3)]


@pytest.mark.parametrize(
    ("head", "rows", "message"),
    [
        (HEAD, [], "has no columns"),
        (("query", "calls"), [("SELECT 1", 1)], "has no columns"),
        (HEAD, [(1, 5, "t", BY_KEY, "many", "1", 1)], "is not one of pg_stat_statements"),
        (HEAD, [(1, 5, "t", BY_KEY, 1, "1", 1), (1, 6, "t", BY_KEY, 1, "1", 1)], "several databases"),
    ],
)
def test_other_files_are_refused(
    tmp_path: Path, head: tuple[str, ...], rows: list[tuple[object, ...]], message: str
) -> None:
    with pytest.raises(PgstrataError, match=message) as refused:
        read_statements(statements(tmp_path / "s.csv", *rows, head=head))
    assert "pg_stat_statements" in refused.value.hint


def test_the_folder_has_a_workload_of_scripts(tmp_path: Path) -> None:
    mix = make_mix([one(BY_KEY), one(JOINED)])
    write_mix(mix, tmp_path / "mix")
    scripts = parse_scripts(mix.weighted(tmp_path / "mix"))
    assert len(scripts) == 2
    assert all(Path(script.name).read_text().endswith(";\n") for script in scripts)
    assert scripts[0].weighted in (tmp_path / "mix" / "workload.yaml").read_text()
    with pytest.raises(UsageError, match="exists"):
        write_mix(mix, tmp_path / "mix")
