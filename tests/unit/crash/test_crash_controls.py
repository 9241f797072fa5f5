"""What a control must show, so that a look which finds nothing, or makes losses up, is noticed."""

from __future__ import annotations

from typing import Any

import pytest
from crash_controls import Control, problem

from pgstrata.record.schema import CrashRecord

LOSES, HOLDS = Control("ext4@fsync=off", loses=True), Control("ext4", loses=False)


def found(**changed: Any) -> CrashRecord:
    return CrashRecord(stack="ext4", seed=1, transactions=80, states=10, verdict="held").model_copy(update=changed)


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
