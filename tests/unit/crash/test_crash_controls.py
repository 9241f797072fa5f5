"""What a control must show, so that a look which finds nothing, or makes losses up, is noticed."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import crash_controls
import pytest
from crash_controls import Control, Outcome, outcome, problem, results, settled, without_unmountable

from pgstrata.crash.job import FAULTS
from pgstrata.crash.verdict import UNMOUNTABLE, summarise
from pgstrata.record.crash import CrashRecord, StateRecord, StateVerdict
from pgstrata.spec.crash_request import CrashRequest

REPAIRED = Control("ext4:nojournal", loses=True, repaired=True)
LOSES, HOLDS = Control("ext4@fsync=off", loses=True), Control("ext4", loses=False)


def found(**changed: Any) -> CrashRecord:
    return CrashRecord(stack="ext4", seed=1, transactions=80, states=10, verdict="held").model_copy(update=changed)


def state(verdict: StateVerdict, reason: str) -> StateRecord:
    return StateRecord(
        id="1.1", cut=1, how="one write torn", volatile=1, kept=1, digest="0", acknowledged=1, verdict=verdict,
        reason=reason,
    )  # fmt: skip


def test_what_loses_and_what_holds_are_as_they_must_be() -> None:
    assert problem(LOSES, found(verdict="lost", lost=1), 10) == ""
    assert problem(LOSES, found(verdict="corrupt", corrupt=3), 10) == ""
    assert problem(LOSES, found(verdict="lost", lost=1, unknown=1, states=100), 10) == ""
    assert problem(HOLDS, found(), 10) == ""
    assert problem(REPAIRED, found(verdict="repair", repair=4), 10) == ""
    assert problem(REPAIRED, found(verdict="corrupt", repair=11, corrupt=2), 10) == ""


@pytest.mark.parametrize(
    ("control", "changed", "words"),
    [
        (LOSES, {}, "must lose"),
        (HOLDS, {"verdict": "lost", "lost": 1}, "must hold"),
        (HOLDS, {"verdict": "unknown", "unknown": 1}, "could not be looked at"),
        (LOSES, {"verdict": "lost", "lost": 1, "unknown": 1}, "could not be looked at"),
        (LOSES, {"verdict": "repair", "repair": 4}, "must lose"),
        (REPAIRED, {"verdict": "lost", "lost": 1}, "must need repair"),
        (HOLDS, {"verdict": "repair", "repair": 1}, "must hold"),
        (HOLDS, {"states": 9}, "only 9 of 10"),
        (HOLDS, {"transactions": 0}, "nothing was acknowledged"),
        (HOLDS, {"request": CrashRequest(ignore_flushes="all")}, "ignored all flushes"),
    ],
)
def test_whatever_else_is_a_problem(control: Control, changed: dict[str, Any], words: str) -> None:
    assert words in problem(control, found(**changed), 10)


FLUSH_ERROR = CrashRequest(fault="flush-error")
FAULTY = Control("ext4", loses=False, fault="flush-error", panics=True)
GOES_ON = Control("ext4@data_sync_retry=on", loses=True, fault="write-error", panics=False)


def test_a_server_that_must_panic_does_and_one_that_must_not_does_not() -> None:
    assert problem(FAULTY, found(request=FLUSH_ERROR, panicked=True), 10) == ""
    assert "did not panic" in problem(FAULTY, found(request=FLUSH_ERROR), 10)
    lost = {"request": CrashRequest(fault="write-error"), "verdict": "lost", "lost": 1}
    assert problem(GOES_ON, found(**lost), 10) == ""
    assert "panicked" in problem(GOES_ON, found(**lost, panicked=True), 10)


def test_every_fault_has_a_control_that_says_whether_the_server_panics() -> None:
    faulty = [control for control in crash_controls.CONTROLS if control.fault]
    assert {control.fault for control in faulty} == set(FAULTS)
    assert all(control.panics is not None for control in faulty)


def test_a_loss_must_show_within_a_minute_of_looking() -> None:
    lost = found(verdict="lost", lost=1)
    assert problem(LOSES, lost, 10, first_s=60.0) == ""
    assert "took 61 s" in problem(LOSES, lost, 10, first_s=61.0)


def test_how_long_was_looked_until_a_state_failed() -> None:
    held, lost = (state(verdict, "").model_copy(update={"duration_s": 3.0}) for verdict in ("held", "lost"))
    assert crash_controls.first_failure([held, held, lost, lost], workers=2) == (3, 4.5)
    assert crash_controls.first_failure([held], workers=2) is None


def test_a_tree_can_be_the_server() -> None:
    asked = argparse.Namespace(majors=[15], installation="/opt/pg", layers=False, only=["ext4"], kind="hold")
    assert [stack for _, stack in crash_controls.chosen(asked)] == ["ext4@major=15", "ext4@installation=/opt/pg"]
    asked.majors = None
    assert [stack for _, stack in crash_controls.chosen(asked)] == ["ext4@installation=/opt/pg"]
    asked.installation = None
    assert [stack for _, stack in crash_controls.chosen(asked)] == ["ext4"]


def test_a_line_names_the_server_and_whether_it_had_amcheck(tmp_path: Path) -> None:
    trial = tmp_path / "crash" / "ext4-0"
    trial.mkdir(parents=True)
    (trial / "facts.json").write_text('{"name": "made up", "checked": {"PostgreSQL version": "18.4"}}')
    assert crash_controls.server_of(tmp_path, found(amcheck=True)) == "PostgreSQL 18.4 with amcheck"
    assert crash_controls.server_of(tmp_path, found()) == "PostgreSQL 18.4 without amcheck"
    assert "ext4@major=15, PostgreSQL 18.4 with amcheck: held" in earlier(server="PostgreSQL 18.4 with amcheck").line


def test_states_that_cannot_be_mounted_are_excused_where_that_is_known_and_no_others() -> None:
    known = Control("ext4:fast_commit", loses=False, unmountable=True)
    lost, torn = state("lost", "3 are missing"), state("corrupt", f"{UNMOUNTABLE}: canceled; after e2fsck it can")
    all_of_them = summarise(found(), [lost, torn])
    assert problem(known, without_unmountable(known, all_of_them, [torn, torn]), 2) == ""
    assert "must hold" in problem(known, without_unmountable(known, all_of_them, [lost, torn]), 2)
    assert "must hold" in problem(HOLDS, without_unmountable(HOLDS, all_of_them, [torn]), 1)
    nested = torn.model_copy(update={"interrupts": "1.7"})
    assert problem(HOLDS, without_unmountable(HOLDS, all_of_them, [nested]), 1) == ""


def earlier(**changed: Any) -> Outcome:
    told = {"control": "ext4@major=15", "host": "lab/crash", "states": 100, "verdict": "held", "counts": "100"}
    return Outcome(**{**told, "duration_s": 1.0, "problem": "", **changed})


@pytest.mark.parametrize(
    ("before", "is_settled"),
    [
        (earlier(), True),
        (earlier(states=99), False),
        (earlier(problem="it lost, and must hold"), False),
        (earlier(host="local"), False),
        (earlier(control="ext4"), False),
    ],
)
def test_a_control_that_was_as_it_must_be_is_not_run_again(before: Outcome, is_settled: bool) -> None:
    assert settled(HOLDS, "ext4@major=15", "lab/crash", 100, [before]) == is_settled


def test_one_that_lost_is_settled_by_however_few_states() -> None:
    assert settled(LOSES, LOSES.stack, "local", 100, [earlier(control=LOSES.name, host="local", states=1)])


def test_a_control_that_comes_to_no_end_is_a_problem_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(*_: object) -> Path:
        raise subprocess.CalledProcessError(4, "pgstrata")

    monkeypatch.setattr(crash_controls, "run", ends)
    asked = argparse.Namespace(seed=1, hold=10, host=None, keep=None, workers=2)
    told = outcome(HOLDS, "ext4", asked)
    assert told.problem == "pgstrata crash ended with 4"
    assert told.line.startswith("FAIL ext4: unknown (states 0, lost 0, corrupt 0, repair 0, unknown 0) in ")
    assert results(tmp_path / "none") == []


def test_more_states_are_looked_at_where_a_few_do_not_show_what_they_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verdict of damage is not enough where a state must need repair."""
    asked = argparse.Namespace(lose=100, hold=10)
    counts = {"few": found(verdict="corrupt", corrupt=6), "all": found(verdict="corrupt", corrupt=9, repair=3)}
    monkeypatch.setattr(crash_controls, "crash", lambda *args: args[3])
    monkeypatch.setattr(crash_controls, "read", lambda out: (counts[out.name], []))
    monkeypatch.setattr(crash_controls, "without_unmountable", lambda control, record, states: record)
    assert crash_controls.run(REPAIRED, "ext4:nojournal", asked, tmp_path) == tmp_path / "all"
    assert crash_controls.run(LOSES, "ext4@fsync=off", asked, tmp_path) == tmp_path / "few"


def test_what_must_pass_before_a_change_lands_has_every_native_control() -> None:
    text = (Path(crash_controls.__file__).parents[1] / ".ci" / "run").read_text(encoding="utf-8")
    words = [shlex.split(line) for line in re.findall(r'^ *make crash CONTROLS="(.*)"$', text, re.MULTILINE)]
    patterns = [pattern for line in words for pattern in line[line.index("--only") + 1 :]]
    controls = [control.name for control in crash_controls.CONTROLS]
    assert [name for name in controls if not any(fnmatchcase(name, pattern) for pattern in patterns)] == []
    assert [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in controls)] == []
