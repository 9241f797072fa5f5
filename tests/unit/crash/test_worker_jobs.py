"""What workers are told, and what they tell."""

from __future__ import annotations

import json

import pytest

from pgstrata.crash.job import parse_seen, shares
from pgstrata.crash.ledger import Answers, LedgerSize
from pgstrata.crash.verdict import Recovery, judge_state
from pgstrata.errors import NotUnderstood

LINE = {"mounted": 0, "mount_error": "", "server": 0, "stdout": "", "stderr": "", "problem": "", "parts_s": {}}


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 20])
def test_every_state_is_in_one_share_and_each_share_is_in_the_order_of_the_log(workers: int) -> None:
    states = list(range(11))
    portions = shares(states, workers)
    assert sorted(state for portion in portions for state in portion) == states
    assert all(portion == sorted(portion) for portion in portions)
    assert max(map(len, portions)) - min(map(len, portions)) <= 1


def test_a_line_that_was_not_finished_is_left_out() -> None:
    line = json.dumps(LINE)
    assert len(parse_seen(f"{line}\n{line}\n{line[:20]}")) == 2
    with pytest.raises(NotUnderstood, match="the worker of states"):
        parse_seen("{}\n")


def test_a_worker_that_could_not_look_says_nothing_about_the_state() -> None:
    recovery = Recovery(mounted=-1, answers=Answers({}, ()), problem="no loop device could be had")
    judged = judge_state(recovery, {0: 1}, LedgerSize(), ())
    assert (judged.verdict, judged.lost, judged.reason) == ("unknown", 0, "no loop device could be had")
