"""Failures of a cluster, reckoned from how far each node's WAL reaches, and held against what was carried out."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pgstrata.analyze.crash import broke_promise, durability_found
from pgstrata.analyze.findings import DurabilityFinding
from pgstrata.crash.cluster_program import (
    SIZE,
    Cut,
    Entry,
    Loss,
    Tried,
    TriedRejoin,
    all_lost,
    count_holders,
    disturbances,
    failures_problem,
    found_of,
    judge_failure,
    judge_rejoin,
    loss,
    parse_cuts,
    plan_cuts,
    reckon,
    summarise_failures,
    with_rejoined,
)
from pgstrata.crash.verdict import power_cut_nodes
from pgstrata.errors import TrialError
from pgstrata.record.crash import (
    ClusterFound,
    CrashRecord,
    FailureRecord,
    PowerCutNodes,
    Rejoined,
    StateRecord,
    StateVerdict,
)
from pgstrata.report.sentences.crash import NODES_EXPLAINED, durability_words, explained_of, title_of, verdict_words
from pgstrata.spec.crash import cluster_power_campaign, named_stacks
from pgstrata.spec.crash_request import CrashRequest
from pgstrata.spec.durability import durability_class
from pgstrata.spec.notation.stack import parse_stack

NAMES = ("primary", "standby1", "standby2")
ENTRIES = tuple(Entry(100 * number, 0, number, float(number)) for number in range(1, 11))
"""One session's; entry n lies at 100 n and was acknowledged at second n."""


def cut(number: int, acknowledged: int, **positions: int) -> Cut:
    return Cut(number, float(acknowledged), {0: acknowledged}, positions, ())


FIRST = cut(1, 4, primary=500, standby1=400, standby2=200, archive=100)
SECOND = cut(2, 9, primary=900, standby1=900, standby2=900, archive=300)


def test_a_loss_is_what_was_acknowledged_and_lies_behind() -> None:
    assert loss(FIRST, ENTRIES, 400) == Loss(0, None), "entry 5 is there, but nobody was told of it"
    assert loss(FIRST, ENTRIES, 200) == Loss(2, 1.0)
    assert loss(SECOND, ENTRIES, 300) == Loss(6, 5.0)
    assert loss(FIRST, ENTRIES, 0).missing == 4


def test_every_set_of_nodes_is_reckoned_at_every_moment() -> None:
    cuts = (FIRST, SECOND)
    one, two = (reckon(cuts, ENTRIES, NAMES, "most", lost) for lost in (1, 2))
    assert (one.reckoned, one.losing, one.missing_max, one.missing_max_s) == (6, 0, 0, None)
    assert (two.reckoned, two.losing, two.missing_max, two.missing_max_s) == (6, 1, 2, 1.0)
    assert two.worst == ("primary", "standby1")
    assert (all_lost(cuts).nodes, all_lost(cuts).losing, all_lost(cuts).missing_max) == (3, 2, 9)


def test_mistakes_are_reckoned_as_they_are_made() -> None:
    cuts = (FIRST, SECOND)
    assert reckon(cuts, ENTRIES, NAMES, "least", 1).missing_max == 2
    forgetful = reckon(cuts, ENTRIES, NAMES, "forgetful", 1)
    assert forgetful.missing_max == 5, "standby1 came back as it was at the first moment"


def test_the_nodes_that_have_a_commit_are_counted_when_it_was_just_acknowledged() -> None:
    assert count_holders((FIRST, SECOND), ENTRIES, NAMES) == (0, 0, 2, 7)
    alone = cut(1, 3, primary=300, standby1=0, standby2=100)
    assert count_holders((alone, replace(alone, number=2)), ENTRIES, NAMES) == (0, 2, 1, 0), "each once"
    assert found().holders == (0, 0, 2, 7)


def carried_out(verdict: StateVerdict, *lost: str, promoted: str = "standby1", missing: int = 0) -> FailureRecord:
    return FailureRecord(
        id="1.1", moment=1, lost=lost, promoted=promoted, acknowledged=9, verdict=verdict, reason="x",
        missing=missing, missing_reckoned=missing,
    )  # fmt: skip


def found(*failures: FailureRecord, archive: bool = True) -> ClusterFound:
    cuts = [FIRST, SECOND]
    if not archive:
        cuts = [replace(c, positions={n: p for n, p in c.positions.items() if n != "archive"}) for c in cuts]
    return found_of(cuts, ENTRIES, failures, NAMES, "most", 1)


def test_what_is_survived_is_what_neither_reckoning_nor_trying_loses() -> None:
    assert found(carried_out("held", "primary")).survives == 1
    assert found(carried_out("corrupt", "primary")).survives == 0
    assert found().archive is not None
    assert found(archive=False).archive is None


def summarised(*failures: FailureRecord, archive: bool = True) -> CrashRecord:
    return summarise_failures(CrashRecord(stack="s", seed=1), failures, found(*failures, archive=archive))


def test_the_verdict_is_of_the_nodes_and_the_archive_has_its_own() -> None:
    restored = carried_out("lost", *NAMES, promoted="archive", missing=6)
    summary = summarised(carried_out("held", "primary"), restored)
    assert (summary.verdict, summary.states, summary.lost) == ("held", 1, 0)
    worse = summarised(carried_out("held", "primary"), carried_out("lost", "primary", missing=2))
    assert (worse.verdict, worse.lost_acknowledged_max) == ("lost", 2)
    assert worse.first_counterexample == "failure 1.1: primary lost, standby1 went on: x"


def test_words_say_what_is_survived_and_what_is_not() -> None:
    stack = durability_class(parse_stack("cluster(3,ANY 1)/tmpfs"))
    held = durability_found(stack, summarised(carried_out("held", "primary")))
    words = verdict_words(held)
    assert words.startswith("survived the loss of any 1 of 3 nodes (2 moments, 1 failures carried out")
    assert "of 9 commits there were, at the first moment after they were acknowledged, 2 on 2 nodes, 7 on 3" in words
    assert "lost up to 2 acknowledged commits, the last 1 s with 2 nodes at once" in words
    assert words.endswith("the archive restores all but up to 6 acknowledged commits, the last 5 s")
    assert durability_words(held).endswith("; survived the loss of any 1 of 3 nodes")
    without = durability_found(stack, summarised(carried_out("held", "primary"), archive=False))
    assert verdict_words(without).endswith("when all nodes lose what they have, nothing is left")
    corrupt = durability_found(stack, summarised(carried_out("corrupt", "primary")))
    assert "corrupt after 1 of 1 failure" in verdict_words(corrupt)
    assert durability_words(corrupt).endswith("loss of nodes: corrupt")


def test_the_section_is_called_after_what_was_done() -> None:
    promised = durability_class(parse_stack("ext4"))
    nodes = durability_found(promised, summarised(carried_out("held", "primary")))
    power = durability_found(promised, CrashRecord(stack="s", seed=1, verdict="held", states=1, amcheck=True))
    assert title_of({"a": power}) == "Power cuts"
    assert title_of({"a": nodes}) == "Lost nodes"
    assert title_of({"a": power, "b": nodes}) == "Power cuts and lost nodes"
    assert explained_of({"b": nodes}) == NODES_EXPLAINED


def powered(verdict: StateVerdict, **nodes: Any) -> DurabilityFinding:
    power = PowerCutNodes(nodes=NAMES, **nodes)
    record = CrashRecord(
        stack="s", seed=1, verdict=verdict, states=40, lost_acknowledged_max=7, lost=3, amcheck=True, power=power
    )
    return durability_found(durability_class(parse_stack("cluster(3)/ext4")), record)


def test_words_say_who_lost_power_who_came_back_and_who_went_on() -> None:
    held = powered("held", went_on={"primary": 40})
    assert verdict_words(held) == "all 3 nodes lost power: held in 40 states; primary went on in 40"
    assert durability_words(held).endswith("; all nodes lost power: held in 40 states")
    lost = powered("lost", in_memory=("primary", "standby2"), gone=("standby1",), went_on={"archive": 40})
    assert verdict_words(lost) == (
        "all 3 nodes lost power (nothing is left of primary and standby2, in memory; standby1 did not come back): lost "
        "acknowledged transactions in 3 of 40 states, up to 7 acknowledged transactions missing; the archive was "
        "restored in 40"
    )


def test_a_power_cut_breaks_the_promise_of_a_primary_that_came_back() -> None:
    assert broke_promise(powered("lost"))
    assert not broke_promise(powered("lost", gone=("primary",)))
    assert not broke_promise(powered("lost", in_memory=("primary",)))


def test_what_is_recorded_of_a_power_cut() -> None:
    states = [
        StateRecord(
            id="1.1", cut=1, how="", volatile=0, kept=0, digest="", acknowledged=0, verdict="held", promoted=name
        )
        for name in ("primary", "standby1", "primary")
    ]
    stack = cluster_power_campaign(named_stacks(["cluster(3)/ext4@standby2=tmpfs"])).stacks[0]
    told = power_cut_nodes(stack, ("standby1",), states)
    assert told == PowerCutNodes(
        nodes=NAMES, in_memory=("standby2",), gone=("standby1",), went_on={"primary": 2, "standby1": 1}
    )
    assert power_cut_nodes(parse_stack("ext4"), (), states) is None


def test_the_loss_of_nodes_breaks_no_promise_of_power() -> None:
    promised = durability_class(parse_stack("cluster(3)/ext4"))
    assert not broke_promise(durability_found(promised, summarised(carried_out("lost", "primary", missing=2))))


# ---------------------------------------------------------------- one failure


def answers(entries: int) -> str:
    values = {
        "sessions": f"[[0, {entries}, 1, {entries}]]",
        "balances": f"[{SIZE.accounts}, 0, 0]",
        "indexed": f"[{entries}, {SIZE.accounts}]",
        "end": "reached",
    }
    return "".join(f'\t 1: {name} = "{value}"\t(typeid = 25)\n' for name, value in values.items())


def tried(entries: int, position: int, **changed: Any) -> Tried:
    given = {"lost": ("primary",), "promoted": "standby2", "server": 0, "stderr": "", "problem": "", "duration_s": 1.0}
    return Tried(position=position, stdout=answers(entries), **{**given, **changed})


@pytest.mark.parametrize(
    ("one", "verdict", "missing"),
    [
        (tried(4, 400), "held", 0),
        (tried(5, 500), "held", 0),
        (tried(2, 200), "lost", 2),
        (tried(4, 200), "unknown", 0),
        (tried(2, 400), "unknown", 2),
        (tried(4, 400, problem="no space"), "unknown", 0),
        (tried(4, 400, stderr="x FATAL: no"), "corrupt", 4),
    ],
)
def test_what_is_missing_must_be_what_the_wal_says(one: Tried, verdict: str, missing: int) -> None:
    judged = judge_failure(FIRST, ENTRIES, one, "1.1", "", ())
    assert (judged.verdict, judged.missing) == (verdict, missing)


def test_what_the_worker_tells_is_read_to_its_end() -> None:
    told = {"number": 1, "at_s": 3.0, "acknowledged": {"0": 1}, "positions": {"primary": 7}, "failures": []}
    last = {"commits": [[0, 2, 9], [0, 1, 7]], "times_s": {"0": [2.5]}}
    cuts, entries = parse_cuts(f"{json.dumps(told)}\n{json.dumps(last)}\n")
    assert cuts == (Cut(1, 3.0, {0: 1}, {"primary": 7}, ()),)
    assert entries == (Entry(7, 0, 1, 2.5), Entry(9, 0, 2, None))
    with pytest.raises(TrialError, match="did not get to its end"):
        parse_cuts(f"{json.dumps(told)}\n")


# ---------------------------------------------------------------- what is planned


def test_moments_are_as_many_as_the_failures_take() -> None:
    cuts = plan_cuts(NAMES, CrashRequest(states=25), 1, archive=True, slow=True)
    assert sum(len(one.failures) for one in cuts) == 25
    assert all(("primary",) in one.failures for one in cuts[:-1])
    assert cuts[0].failures == (("primary",), ("standby1",), ("standby2",), NAMES)
    assert {one.disturbance for one in cuts} == set(disturbances(NAMES, slow=True))
    assert cuts == plan_cuts(NAMES, CrashRequest(states=25), 1, archive=True, slow=True)
    alone = plan_cuts(NAMES, CrashRequest(states=4, lost=3), 1, archive=True, slow=True)
    assert [one.failures for one in alone] == [(NAMES,)] * 4


def test_every_node_is_cut_off_and_standbys_are_slow_where_links_can_be() -> None:
    assert disturbances(("primary", "standby1"), slow=True) == (
        "", "primary cut off", "standby1 cut off", "standby1 standing still", "standby1 slow",
    )  # fmt: skip
    assert "standby1 slow" not in disturbances(("primary", "standby1"), slow=False)


@pytest.mark.parametrize(
    ("stack", "asked", "words"),
    [
        ("cluster(3)/tmpfs", CrashRequest(), ""),
        ("cluster(1)/tmpfs", CrashRequest(), "a single server"),
        ("cluster(3)/tmpfs", CrashRequest(lost=3), "no archive"),
        ("cluster(3)/tmpfs@archive=ext4", CrashRequest(lost=3), ""),
        ("cluster(3)/tmpfs@archive=ext4", CrashRequest(lost=4), "it has 3 nodes"),
        ("cluster(3)/tmpfs@archive=ext4", CrashRequest(lost=3, promote="least"), "nobody is promoted"),
    ],
)
def test_failures_that_leave_nothing_are_refused(stack: str, asked: CrashRequest, words: str) -> None:
    refused = failures_problem(parse_stack(stack), asked)
    assert (words in refused) if words else refused == ""


# ---------------------------------------------------------------- the old primary comes back


def rejoin(entries: int, problem: str = "", stderr: str = "") -> TriedRejoin:
    return TriedRejoin(problem, None if problem else 0, "" if problem else answers(entries), stderr)


@pytest.mark.parametrize(
    ("promoted", "back", "verdict", "reason", "acknowledged", "given_up"),
    [
        (tried(4, 400), rejoin(4), "held", "", 0, 1),
        (tried(2, 200), rejoin(2), "held", "", 2, 3),
        (tried(4, 400), rejoin(5), "corrupt", "it has other entries than standby2, which it follows", 0, 1),
        (
            tried(4, 400),
            rejoin(0, problem="pg_rewind:\n no WAL"),
            "unknown",
            "it does not follow: pg_rewind: no WAL",
            0,
            1,
        ),
        (tried(4, 400), rejoin(4, stderr="x PANIC: no"), "corrupt", "PANIC: no", 0, 1),
    ],
)
def test_what_the_old_primary_has_once_it_follows_and_what_it_gave_up(
    promoted: Tried, back: TriedRejoin, verdict: str, reason: str, acknowledged: int, given_up: int
) -> None:
    """It had entries 1 to 5, of which 1 to 4 were acknowledged."""
    found = judge_rejoin(FIRST, ENTRIES, promoted, back, "rewind", ())
    assert (found.verdict, found.reason, found.acknowledged, found.discarded) == (
        verdict, reason, acknowledged, given_up,
    )  # fmt: skip


def rejoined(verdict: StateVerdict, given_up: int = 3) -> Rejoined:
    return Rejoined(how="backup", discarded=given_up, acknowledged=2, verdict=verdict, reason="y" * (verdict != "held"))


def test_a_primary_that_cannot_be_had_back_is_a_failure_and_no_excuse_for_one() -> None:
    held, lost = carried_out("held", "primary"), carried_out("lost", "primary", missing=2)
    assert with_rejoined(held, rejoined("held")).verdict == "held"
    failed = with_rejoined(held, rejoined("unknown"))
    assert (failed.verdict, failed.reason) == ("unknown", "the old primary, which follows by a new base backup: y")
    assert (with_rejoined(lost, rejoined("unknown")).verdict, lost.reason) == ("lost", "x")


def test_words_say_what_the_old_primary_gave_up() -> None:
    failures = [
        carried_out("held", "primary").model_copy(update={"rejoined": rejoined("held", given_up)})
        for given_up in (1, 3)
    ]
    failures.append(carried_out("unknown", "primary").model_copy(update={"rejoined": rejoined("unknown", 0)}))
    stack = durability_class(parse_stack("cluster(3,ANY 1)/tmpfs"))
    assert (
        "by a new base backup the old primary followed the promoted node in 2 of 3, giving up as many as 3 commits "
        "that the other lacked, 2 of them acknowledged"
    ) in verdict_words(durability_found(stack, summarised(*failures)))
    assert found(carried_out("held", "primary")).rejoined is None
