"""Power that is lost again while a state is recovered: which states, what they are called, what counts."""

from __future__ import annotations

import json
from dataclasses import asdict
from types import SimpleNamespace
from typing import cast

import pytest

from pgstrata.crash.event_log_archive import kept_log
from pgstrata.crash.job import Seen, WorkerOutput
from pgstrata.crash.ledger import LedgerSize, Mark
from pgstrata.crash.program import Batch, ChosenState, CrashContext, take_told
from pgstrata.crash.recovery_cuts import interrupted_count, spread
from pgstrata.crash.runner import CrashRunner, examined_ids
from pgstrata.crash.verdict import summarise
from pgstrata.record.crash import CrashRecord, StateRecord, StateVerdict
from pgstrata.spec.crash_request import CrashRequest
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.trial.context import TrialSetup
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.survey.host_survey import Site


def state(number: int) -> ChosenState:
    return ChosenState("{}", number, 100 + number, "nothing kept", 3, 0, f"{number:016x}")


def record(id_: str, verdict: StateVerdict, interrupts: str | None = None) -> StateRecord:
    return StateRecord(
        id=id_, interrupts=interrupts, cut=7, how="one write torn", volatile=3, kept=1, digest="0" * 16,
        acknowledged=5, verdict=verdict, reason="a reason",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("count", "expected"), [(0, []), (1, [5]), (2, [2, 7]), (10, list(range(10))), (99, list(range(10)))]
)
def test_those_that_are_interrupted_lie_at_equal_distances(count: int, expected: list[int]) -> None:
    assert [one.id for one in spread([state(number) for number in range(10)], count)] == expected


def test_one_of_a_hundred_is_interrupted_unless_a_number_is_asked_for() -> None:
    def interrupted(states: int, number: int = 0, *, stack: str = "ext4", nested: int | None = None) -> int:
        setup, request = SimpleNamespace(stack=parse_stack(stack)), CrashRequest(nested=nested)
        return interrupted_count(cast(CrashContext, SimpleNamespace(setup=setup, request=request)), states, number)

    assert [interrupted(states) for states in (40, 100, 1000)] == [0, 1, 10]
    assert [interrupted(20, number, nested=5) for number in (0, 1)] == [5, 0]
    assert interrupted(1000, nested=0) == 0
    assert interrupted(1000, stack="cluster(3,ANY 1)/ext4") == 0, "its servers go on elsewhere"


@pytest.mark.parametrize(
    ("failed", "looked", "states", "enough"),
    [(10, 100, None, True), (9, 100, None, False), (10, 99, None, False), (10, 100, 400, False), (0, 500, None, True)],
)
def test_a_stack_that_is_proven_to_fail_is_left_unless_a_number_was_requested(
    failed: int, looked: int, states: int | None, enough: bool
) -> None:
    request = CrashRequest(states=states)
    found = [record(f"1.{number}", "lost" if number < failed else "held") for number in range(looked)]
    context = cast(CrashContext, SimpleNamespace(problem="", found=found))
    runner = CrashRunner(cast(Site, None), cast(Interruption, None), request)
    assert request.requested == (states or 500)
    assert runner._enough(context, request.requested, None) is enough


def test_one_of_ten_is_read_to_its_end_and_one_of_the_first_pass_in_any_case() -> None:
    setup = cast(TrialSetup, SimpleNamespace(stack=parse_stack("ext4")))
    few, many = ([state(number) for number in range(count)] for count in (5, 300))
    assert [len(examined_ids(setup, few, number)) for number in (0, 1)] == [1, 0]
    assert examined_ids(setup, many, 1) == set(range(5, 300, 10))
    cluster = cast(TrialSetup, SimpleNamespace(stack=parse_stack("cluster(2)/ext4")))
    assert examined_ids(cluster, many, 0) == frozenset()


def test_a_nested_state_is_named_after_the_one_that_it_interrupts() -> None:
    batch = Batch("1.17", "recovery-1.17.media.log", (state(3),), interrupts=state(17))
    assert batch.id_of(batch.states[0]) == "1.17.3"
    assert (kept_log("1.17"), kept_log(None)) == ("raw/recovery-1.17.log.gz", "raw/events.log.gz")


def test_its_verdict_counts_with_the_others() -> None:
    states = [record("1.17", "held"), record("1.17.3", "lost", "1.17")]
    found = summarise(CrashRecord(stack="ext4", seed=1), states)
    assert (found.verdict, found.states, found.nested, found.lost) == ("lost", 2, 1, 1)
    assert found.first_counterexample is not None
    assert "power lost after event 7 of the recovery of state 1.17, one write torn" in found.first_counterexample


def test_what_had_been_acknowledged_is_reckoned_at_the_first_cut() -> None:
    """Cuts of a recovery are counted in another log: by its own numbers next to nothing had been acknowledged."""
    written: dict[str, str] = {}
    recorder = SimpleNamespace(write_text=written.__setitem__, append=lambda name, record: None)
    server = SimpleNamespace(installation=SimpleNamespace(contrib=frozenset(), major=18))
    context = SimpleNamespace(
        setup=SimpleNamespace(server=server),
        marks=(Mark(104, 1, 1, 0.1), Mark(117, 1, 2, 0.2), Mark(118, 2, 1, 0.3)),
        request=CrashRequest(), size=LedgerSize(),
        recorder=recorder, found=[], problem="",
    )  # fmt: skip
    cannot = Seen(32, "bad superblock", None, "", "", "")
    batch = Batch("1.17", "recovery-1.17.media.log", (state(3),), interrupts=state(17))
    told = WorkerOutput(0, json.dumps(asdict(cannot)) + "\n", "")
    take_told(cast("CrashContext", context), batch, [(batch.states, told)])
    (found,) = context.found
    assert (found.id, found.interrupts, found.cut) == ("1.17.3", "1.17", 103)
    assert (found.acknowledged, found.lost) == (2, 2)
    assert list(written) == ["raw/states/1.17.3.json"]
