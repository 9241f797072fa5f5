"""When commits wait for standbys for ever, by what the primary says of them now and then."""

from __future__ import annotations

from collections.abc import Mapping

from pgstrata.trial.steps.cluster import STALLED_S, CommitWatch


def waits(able: int, *transactions: str) -> Mapping[str, object]:
    return {"able": able, "waiting": len(transactions), "transactions": " ".join(transactions)}


def test_standbys_must_be_gone_in_two_looks() -> None:
    watch = CommitWatch(1)
    assert watch.hangs(waits(0, "7"), 0.0) == ""
    assert watch.hangs(waits(0, "7", "8"), 5.0).startswith("commits hang: 2 sessions wait for 1 synchronous standbys")
    watch = CommitWatch(1)
    assert [watch.hangs(waits(able, "7"), float(able)) for able in (0, 1, 0)] == ["", "", ""]


def test_one_transaction_must_have_waited_for_connected_standbys() -> None:
    watch = CommitWatch(2)
    assert watch.hangs(waits(2, "7", "8"), 0.0) == ""
    assert watch.hangs(waits(2, "8", "9"), STALLED_S - 1) == ""
    said = watch.hangs(waits(2, "8", "10"), STALLED_S + 1)
    assert said.startswith("commits hang: one has waited for 46 s for 2 synchronous standbys")
    assert "2 are connected" in said


def test_commits_that_come_and_go_do_not_hang() -> None:
    watch = CommitWatch(1)
    assert {watch.hangs(waits(1, str(number), str(number + 1)), 10.0 * number) for number in range(60)} == {""}
    assert watch.hangs(waits(1), 1000.0) == ""
