"""What so many states that held can show at best."""

from __future__ import annotations

import pytest

from pgstrata.analyze.crash import broke_promise, durability_found, is_incomplete, share_bound
from pgstrata.analyze.findings import DurabilityFinding
from pgstrata.record.crash import CrashRecord
from pgstrata.record.reader import CrashData
from pgstrata.record.schema import TrialVerdict
from pgstrata.report.sentences.crash import crash_lines, durability_words, verdict_words
from pgstrata.spec.campaign import Trial
from pgstrata.spec.durability import Durability


@pytest.mark.parametrize(("states", "bound"), [(0, 1.0), (1, 0.95), (150, 0.019773), (1000, 0.0029912)])
def test_the_bound_is_that_of_no_failure_among_so_many(states: int, bound: float) -> None:
    assert share_bound(states) == pytest.approx(bound, rel=1e-4)
    if states:
        assert (1 - share_bound(states)) ** states == pytest.approx(0.05)


def finding(**found: object) -> DurabilityFinding:
    promised = Durability("survives power loss", "flushed")
    record = CrashRecord.model_validate({"stack": "ext4", "seed": 1, "amcheck": True, **found})
    return durability_found(promised, record)


def test_a_stack_that_held_is_told_with_its_bound_and_never_called_safe() -> None:
    counted = {"checkpoints": 5, "flush_epochs": 910, "recorded_s": 0.83, "many_volatile": 31}
    held = finding(verdict="held", states=378, drawn=98, **counted)
    looked = (
        "held in 378 states of 5 checkpoints and 910 flush epochs (0.830 s), 31 states with 7 or more volatile writes"
    )
    bound = "one state of 98 flush epochs by lot: at 95 % confidence fewer than 3 % of such states fail"
    assert verdict_words(held) == f"{looked} ({bound})"
    assert durability_words(held) == "survives power loss; held in 378 states"


def test_chosen_states_alone_have_no_bound() -> None:
    assert verdict_words(finding(verdict="held", states=1000, nested=900)) == "held in 1,000 states"


def test_missing_states_and_their_reason_stand_in_line_and_table() -> None:
    found = finding(verdict="unknown", states=21, unknown=1, missing=19, unknown_reason="the daemon is gone")
    gap = "19 requested states not checked; unknown because the daemon is gone"
    assert verdict_words(found) == f"unknown in 1 of 21 states ({gap})"
    assert durability_words(found) == f"survives power loss; power cuts: unknown ({gap})"


@pytest.mark.parametrize(
    ("status", "found", "incomplete"),
    [
        ("ok", {"verdict": "held", "states": 3}, False),
        ("ok", {"verdict": "lost", "states": 3, "lost": 1}, False),
        ("ok", {"verdict": "lost", "states": 3, "lost": 1, "unknown": 1}, True),
        ("ok", {"verdict": "lost", "states": 3, "lost": 1, "missing": 1}, True),
        ("ok", {"verdict": "unknown"}, True),
        ("failed", {"verdict": "unknown"}, True),
        ("unsupported", {"verdict": "unknown"}, False),
    ],
)
def test_unknown_is_not_success(status: str, found: dict[str, object], incomplete: bool) -> None:
    trial = Trial(id="ext4-0", stack="ext4", block=0, position=0, load="fresh", scale=1, cells=(), workload_seed=1)
    record = CrashRecord.model_validate({"stack": "ext4", "seed": 1, **found})
    verdict = TrialVerdict.model_validate({"trial_id": "ext4-0", "status": status})
    assert is_incomplete(CrashData(trial, verdict, record, None)) == incomplete


def test_a_broken_promise_is_told() -> None:
    lost = finding(
        verdict="lost", states=1200, lost=7, lost_acknowledged_max=38, first_counterexample="state 1.3: gone"
    )
    lines = list(crash_lines({"ext4": lost}, {}))
    assert lines == [
        "ext4: lost acknowledged transactions in 7 of 1,200 states, up to 38 acknowledged transactions missing",
        "  first: state 1.3: gone",
        "  its configuration promises that it survives power loss: flushed",
    ]


def test_the_time_of_a_loss_and_that_the_rest_is_consistent_are_told() -> None:
    found = {"verdict": "lost", "states": 9, "lost": 7, "lost_acknowledged_max": 38, "lost_max_s": 0.34}
    lost = finding(**found, newest_only=True)
    told = "the last 340 ms before the cut; consistent, only the newest commits are gone"
    assert verdict_words(lost).endswith(f", up to 38 acknowledged transactions missing, {told}")
    assert durability_words(lost) == f"survives power loss; lost up to 38 acknowledged commits, {told}"
    assert "consistent" not in verdict_words(finding(**found))


def test_what_held_after_a_repair_is_neither_lost_nor_damaged() -> None:
    found = finding(verdict="repair", states=40, repair=26, first_counterexample="state 1.3: cannot be mounted")
    assert verdict_words(found) == "needs repair, and held after it, in 26 of 40 states"
    assert durability_words(found) == "survives power loss; needs repair in 26 of 40 states, held after it"
    first = "  first: state 1.3: cannot be mounted"
    assert list(crash_lines({"ext4": found}, {}))[1:] == [first]
    known = found.model_copy(update={"class_": "unknown", "reason": "no journal"})
    assert list(crash_lines({"ext4": known}, {}))[1:] == [first, "  its configuration: no journal"]


def test_no_state_is_no_verdict() -> None:
    assert verdict_words(finding()) == "unknown of 0 states"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            {"request": {"fault": "gone"}},
            "held in 24 states (with fault gone; one state of 8 flush epochs by lot: at 95",
        ),
        (
            {"request": {"fault": "flush-error"}, "panicked": True},
            "(with fault flush-error, at which PostgreSQL panicked; one state of 8 flush epochs by lot: at 95",
        ),
        ({"amcheck": False}, "held in 24 states (without amcheck; one state of 8 flush epochs by lot: at 95"),
        (
            {"request": {"ignore_flushes": "3", "fault": "full"}},
            "(on a disk that ignores the last 3 flushes; with fault full; one state of 8 flush epochs by lot: at 95",
        ),
    ],
)
def test_what_else_failed_and_what_was_not_looked_at_are_told(found: dict[str, object], words: str) -> None:
    assert words in verdict_words(finding(verdict="held", states=24, drawn=8, **found))


def test_a_promise_is_about_power_alone() -> None:
    assert broke_promise(finding(verdict="lost", states=24, lost=3))
    assert not broke_promise(finding(verdict="lost", states=24, lost=3, request={"fault": "write-error"}))
