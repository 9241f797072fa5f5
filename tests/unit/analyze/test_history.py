"""Stacks over many sessions: false alarms, power, what is left out or refused, and what the verb prints."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_history import BEGUN, CELL, Past, detected, histories, make_sessions, share_false
from typer.testing import CliRunner

from pgstrata.analyze.sessions.comparison import Session
from pgstrata.analyze.sessions.history import History, trace_history
from pgstrata.cli.main import app
from pgstrata.errors import UsageError
from pgstrata.importers.csv_runs import import_csv
from pgstrata.report.sentences.history import history_lines

pytestmark = pytest.mark.slow

HISTORIES = 100


@pytest.mark.parametrize(
    "past", [Past(20), Past(20, stacks=3, blocks=(3, 12)), Past(20, noise="t3"), Past(20, noise="slow runs")]
)
def test_sessions_that_drift_show_no_change_more_often_than_promised(past: Past) -> None:
    assert share_false(histories(past, HISTORIES)) <= 0.05


def test_without_the_reference_they_do() -> None:
    assert share_false(histories(Past(20), HISTORIES, by_reference=False)) > 0.5


def test_a_step_of_a_tenth_is_told_placed_and_held_after_ten_sessions() -> None:
    past = Past(30, step=0.9, at=20)
    found = detected(past, histories(past, HISTORIES))
    assert found.told >= 0.95
    assert min(found.placed, found.held) >= 0.95
    assert found.further <= 0.05


def sessions(count: int = 30, **asked: Any) -> list[Session]:
    return make_sessions(Past(count, stacks=2, step=0.9, at=15, **asked), np.random.default_rng(1))


def without(session: Session, name: str) -> Session:
    return replace(
        session,
        specs={k: v for k, v in session.specs.items() if k != name},
        values={k: v for k, v in session.values.items() if k != name},
    )


def of(found: History, stack: str) -> Any:
    return next(one for one in found.series if one.stack == stack)


def test_the_order_is_that_of_time() -> None:
    made = sessions()
    assert trace_history(made[::-1], "reference") == trace_history(made, "reference")


def test_what_differs_at_a_change_is_named() -> None:
    made = [replace(one, facts={"kernel": "6.1" if at < 15 else "6.18"}) for at, one in enumerate(sessions())]
    (change,) = of(trace_history(made, "reference"), "s0").changes
    assert change.after < 15 <= change.before
    assert not change.rose
    assert change.differing == (("kernel", "6.1", "6.18"),)
    assert change.low < 0.9 < change.high


def test_a_change_of_the_reference_shows_as_one_of_all_others_at_once() -> None:
    found = trace_history(sessions(), "s0")
    assert [[c.shared for c in one.changes] for one in found.series] == [[True], [True]]
    assert not of(trace_history(sessions(), "reference"), "s0").changes[0].shared
    assert any("it may be the reference" in line for line in history_lines(found))


def test_sessions_that_cannot_count_are_left_out_and_named() -> None:
    made = sessions()
    made[3] = replace(made[3], metric="latency_avg_ms")
    made[4] = replace(made[4], paired=False)
    made[5] = without(made[5], "reference")
    made[6] = replace(made[6], specs={**made[6].specs, "reference": "xfs"})
    found = trace_history([*made, replace(made[9], name="copy")], "reference")
    assert {reason for _, reason in found.left_out} == {
        "other metric", "unpaired", "without the reference", "the same as another",
    }  # fmt: skip
    assert len(found.left_out) == 5
    assert len(found.sessions) == 26
    assert len(of(found, "s0").changes) == 1


def test_a_stack_of_another_specification_is_another_stack() -> None:
    made = [replace(one, specs={**one.specs, "s1": "xfs" if at >= 20 else "ext4"}) for at, one in enumerate(sessions())]
    found = trace_history(made, "reference")
    assert [point.session for point in of(found, "s1").points] == list(range(20, 30))
    assert found.unmatched == ("s1",)


def test_what_no_reference_can_tell_is_refused() -> None:
    made = sessions(4)
    assert (
        trace_history([without(made[0], "s0"), without(without(made[1], "reference"), "s1")]).refused == "no reference"
    )
    assert trace_history([made[0], without(made[1], "reference")], "reference").refused == "too few sessions"
    alone = [without(without(one, "s0"), "s1") for one in made]
    assert trace_history(alone).refused == "no second stack"
    assert trace_history(made).refused is None


def test_a_few_sessions_say_how_many_it_takes() -> None:
    lines = "\n".join(history_lines(trace_history(sessions(3), "reference")))
    assert "in 3 sessions; a change can be told from 6 on" in lines


def campaign(folder: Path, number: int, factor: float) -> Path:
    """Of one day; the whole day is faster or slower by some percent."""
    rng = np.random.default_rng(number)
    rows, day = ["stack,block,tps"], math.exp(rng.normal(0, 0.05))
    for block in range(3):
        rows.append(f"ext4,{block},{1000 * day * math.exp(rng.normal(0, 0.01))}")
        rows.append(f"xfs-<b>,{block},{1100 * factor * day * math.exp(rng.normal(0, 0.01))}")
    table = folder / f"{number}.csv"
    table.write_text("\n".join(rows) + "\n")
    out = folder / f"day-{number}"
    import_csv(table, out)
    record = json.loads((out / "campaign.json").read_text())
    record["created"] = (BEGUN + timedelta(days=number)).isoformat()
    (out / "campaign.json").write_text(json.dumps(record))
    return out


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("nightly")
    return [str(campaign(folder, number, 1.0 if number < 6 else 0.8)) for number in range(12)]


def test_the_verb_prints_the_change_and_writes_a_page(days: list[str], tmp_path: Path) -> None:
    page = tmp_path / "pages" / "history.html"
    done = CliRunner().invoke(app, ["history", *days[::-1], "--reference", "ext4", "--html", str(page)])
    assert done.exit_code == 0, done.output
    assert "12 sessions from 2026-01-01 to 2026-01-12: throughput, against ext4" in done.output
    assert "between 2026-01-06 and 2026-01-07: the stack itself" in done.output
    assert "since 2026-01-07, in 12 sessions in all" in done.output
    text = page.read_text()
    assert text.count("<svg") == 1
    assert text.count("<rect") == 1
    assert "xfs-&lt;b&gt;" in text
    assert "<b>" not in text


def test_the_verb_prints_json(days: list[str]) -> None:
    done = CliRunner().invoke(app, ["history", *days, "--json"])
    found = json.loads(done.stdout)
    assert (found["schema"], found["reference"], len(found["sessions"])) == ("pgstrata.history/1", "ext4", 12)
    (series,) = found["series"]
    (change,) = series["changes"]
    assert (change["after"], change["before"]) == (5, 6)
    assert change["low"] < 0.8 < change["high"]
    assert len(series["points"]) == 12
    assert "between 2026-01-06 and 2026-01-07" in change["sentence"]


def test_exit_codes_are_those_of_compare(days: list[str], tmp_path: Path) -> None:
    for words in (days[:1], [*days, "--reference", "btrfs"]):
        assert isinstance(CliRunner().invoke(app, ["history", *words]).exception, UsageError)
    same = CliRunner().invoke(app, ["history", days[0], days[0], "--html", str(tmp_path / "page.html")])
    assert same.exit_code == 3
    assert "the same campaign as another one" in same.output
    assert not (tmp_path / "page.html").exists()


def test_campaigns_of_one_day_are_told_apart_by_the_time(tmp_path: Path) -> None:
    made = [replace(one, at=BEGUN + timedelta(minutes=at)) for at, one in enumerate(sessions(3))]
    assert "from 2026-01-01 00:00:00 to 2026-01-01 00:02:00" in next(iter(history_lines(trace_history(made))))
    assert CELL in "".join(history_lines(trace_history(made)))
