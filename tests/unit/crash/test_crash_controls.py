"""What a control must show, so that a look which finds nothing, or makes losses up, is noticed."""

from __future__ import annotations

from typing import Any

import pytest
from crash_controls import Control, problem, without_unmountable

from pgstrata.crash.verdict import UNMOUNTABLE, summarise
from pgstrata.record.schema import CrashRecord, StateRecord, StateVerdict

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
    assert problem(HOLDS, found(), 10) == ""


@pytest.mark.parametrize(
    ("control", "changed", "words"),
    [
        (LOSES, {}, "must lose"),
        (HOLDS, {"verdict": "lost", "lost": 1}, "must hold"),
        (HOLDS, {"verdict": "unknown", "unknown": 1}, "could not be looked at"),
        (LOSES, {"verdict": "lost", "lost": 1, "unknown": 1}, "could not be looked at"),
        (HOLDS, {"states": 9}, "only 9 of 10"),
        (HOLDS, {"transactions": 0}, "nothing was acknowledged"),
        (HOLDS, {"ignored_flushes": "all"}, "ignored all flushes"),
    ],
)
def test_whatever_else_is_a_problem(control: Control, changed: dict[str, Any], words: str) -> None:
    assert words in problem(control, found(**changed), 10)


def test_states_that_cannot_be_mounted_are_excused_where_that_is_known_and_no_others() -> None:
    known = Control("ext4:fast_commit", loses=False, unmountable=True)
    lost, torn = state("lost", "3 are missing"), state("corrupt", f"{UNMOUNTABLE}: canceled; after e2fsck it can")
    all_of_them = summarise(found(), [lost, torn])
    assert problem(known, without_unmountable(known, all_of_them, [torn, torn]), 2) == ""
    assert "must hold" in problem(known, without_unmountable(known, all_of_them, [lost, torn]), 2)
    assert "must hold" in problem(HOLDS, without_unmountable(HOLDS, all_of_them, [torn]), 1)
    nested = torn.model_copy(update={"interrupts": "1.7"})
    assert problem(HOLDS, without_unmountable(HOLDS, all_of_them, [nested]), 1) == ""
