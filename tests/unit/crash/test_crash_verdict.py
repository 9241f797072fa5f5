"""What a state shows: only a ledger that was read to its end and lacks nothing holds."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pgstrata.crash.ledger import (
    AMCHECK,
    VISIBILITY,
    Answers,
    LedgerSize,
    Mark,
    acknowledged_by,
    checks_of,
    count_flushes,
    lost_time_s,
    parse_answers,
    parse_marks,
    render_check,
    render_schema,
)
from pgstrata.crash.script import LEDGER, SCRIPTS, TPCB_LIKE, Script
from pgstrata.crash.verdict import Examination, Judged, Recovery, judge_state, summarise
from pgstrata.errors import NotUnderstood
from pgstrata.record.crash import CrashRecord, StateRecord, StateVerdict
from pgstrata.workload.tpcc_driver import TpccDriver

SIZE = LedgerSize(accounts=10)
GOOD = {
    "sessions": "[[0, 5, 1, 5], [1, 3, 1, 3]]",
    "balances": "[10, 0, 0]",
    "indexed": "[8, 10]",
    "indexes": "2",
    "heaps": '{"damaged places in tables": 0}',
    "relations": '{"damaged places in tables": 0}',
    "visibility": '{"wrong bits of visibility maps": 0}',
    "objects": '{"large objects": 0}',
    "end": "reached",
}
ACKNOWLEDGED = {0: 5, 1: 2}
EVERYTHING = checks_of((AMCHECK, VISIBILITY), major=15)


def recovered(errors: tuple[str, ...] = (), **changed: str) -> Recovery:
    return Recovery(mounted=0, server=0, answers=Answers({**GOOD, **changed}, errors))


def judged(recovery: Recovery) -> Judged:
    return judge_state(recovery, ACKNOWLEDGED, SIZE, EVERYTHING)


def test_everything_that_was_acknowledged_and_one_more_holds() -> None:
    assert judged(recovered()) == Judged("held")


@pytest.mark.parametrize(
    ("changed", "verdict", "lost", "words"),
    [
        ({"sessions": "[[0, 4, 1, 4], [1, 3, 1, 3]]", "indexed": "[7, 10]"}, "lost", 1, "1 acknowledged"),
        ({"sessions": "[[0, 5, 1, 5]]", "indexed": "[5, 10]"}, "lost", 2, "2 acknowledged"),
        ({"sessions": "[]", "indexed": "[0, 10]"}, "lost", 7, "7 acknowledged"),
        ({"sessions": "[[0, 5, 1, 6], [1, 3, 1, 3]]"}, "corrupt", 0, "gap"),
        ({"sessions": "[[0, 4, 2, 5], [1, 3, 1, 3]]", "indexed": "[7, 10]"}, "corrupt", 1, "gap"),
        ({"sessions": "[[0, 7, 1, 7], [1, 3, 1, 3]]", "indexed": "[10, 10]"}, "corrupt", 0, "not been written yet"),
        ({"balances": "[10, 5, 1]"}, "corrupt", 0, "balances"),
        ({"balances": "[10, 0, 2]"}, "corrupt", 0, "balances"),
        ({"balances": "[9, 0, 0]", "indexed": "[8, 9]"}, "corrupt", 0, "9 accounts"),
        ({"indexed": "[7, 10]"}, "corrupt", 0, "indexes"),
        ({"heaps": '{"damaged places in tables": 1}'}, "corrupt", 0, "wrong: damaged places in tables (1)"),
        ({"indexes": "1"}, "corrupt", 0, "1 of the 2 indexes"),
        ({"sessions": "nonsense"}, "unknown", 0, "not understood"),
        ({"end": ""}, "unknown", 0, "before everything"),
    ],
)
def test_whatever_is_missing_or_contradicts_itself_is_told(
    changed: dict[str, str], verdict: str, lost: int, words: str
) -> None:
    found = judged(recovered((), **changed))
    assert (found.verdict, found.lost) == (verdict, lost)
    assert words in found.reason


@pytest.mark.parametrize(
    "line",
    [
        '2026 [1] ERROR:  relation "ledger.entry" does not exist at character 9',
        'postgres: could not access directory "/mnt/pgdata": No such file or directory',
    ],
)
def test_an_empty_answer_is_total_loss_and_no_pass(line: str) -> None:
    assert judged(recovered(errors=(line,))) == Judged("lost", "nothing of the ledger is there", 7)


def test_a_checker_that_reads_nothing_or_crashes_is_unknown() -> None:
    nothing = replace(recovered(), answers=Answers({}, ()))
    assert judged(nothing).verdict == "unknown"
    assert judged(replace(nothing, server=-11)).verdict == "unknown"
    assert judged(replace(recovered(), server=None)).verdict == "unknown"


def test_a_server_or_filesystem_that_does_not_come_up_is_corrupt() -> None:
    panic = replace(recovered(errors=("2026 [7] PANIC:  could not locate a valid checkpoint record",)), server=1)
    assert judged(panic) == Judged("corrupt", "PANIC:  could not locate a valid checkpoint record", 7)
    damaged = recovered(errors=('2026 [7] ERROR:  invalid page in block 3 of relation "base/5/16386"',))
    assert judged(damaged).verdict == "corrupt"
    assert judged(Recovery(mounted=32, mount_error="bad\nsuperblock")).reason.endswith("bad superblock")


@pytest.mark.parametrize(
    "line",
    [
        "2026 [7] FATAL:  could not map anonymous shared memory: Cannot allocate memory",
        "2026 [7] FATAL:  could not create shared memory segment: No space left on device",
        '2026 [7] PANIC:  could not open file "base/5/1": Too many open files in system',
        "2026 [7] ERROR:  out of memory",
        "postgres: could not fork: Resource temporarily unavailable",
    ],
)
def test_a_host_without_resources_says_nothing_about_a_state(line: str) -> None:
    found = judged(replace(recovered(errors=(line,)), server=1, answers=Answers({}, (line,))))
    assert (found.verdict, found.lost) == ("unknown", 0)
    assert found.reason.startswith("the host was out of resources: ")


def test_a_mount_without_memory_says_nothing_about_a_state() -> None:
    refused = Recovery(mounted=32, mount_error="mount: /mnt: Cannot allocate\nmemory.")
    assert (judged(refused).verdict, judged(refused).lost) == ("unknown", 0)
    mended = replace(recovered(), mounted=32, mount_error=refused.mount_error, mended="e2fsck -p <data.0>")
    assert judged(mended).verdict == "unknown"


@pytest.mark.parametrize("left_out", ["heaps", "indexes"])
def test_an_answer_of_amcheck_that_is_missing_is_unknown_where_it_was_asked(left_out: str) -> None:
    answers = Answers({name: value for name, value in GOOD.items() if name != left_out}, ())
    recovery = replace(recovered(), answers=answers)
    assert judged(recovery).verdict == "unknown"
    assert judge_state(recovery, ACKNOWLEDGED, SIZE, checks_of((), major=15)).verdict == "held"
    old = judge_state(recovery, ACKNOWLEDGED, SIZE, checks_of((AMCHECK,), major=13))
    assert old.verdict == ("held" if left_out == "heaps" else "unknown")


DEEP = checks_of((AMCHECK, VISIBILITY), major=15, deep=True)


@pytest.mark.parametrize(
    ("code", "said", "verdict", "reason"),
    [
        (0, "", "held", ""),
        (4, "Block bitmap\ndiffers", "corrupt", "a tool: Block bitmap differs"),
        (8, "cannot open", "unknown", "a tool: cannot open"),
        (127, "", "unknown", "a tool: "),
        (None, "", "unknown", "a tool: "),
        (-9, "", "unknown", "a tool: "),
        (1, "Cannot allocate memory", "unknown", "a tool: Cannot allocate memory"),
    ],
)
def test_what_a_tool_finds_makes_a_state_corrupt_and_names_it(
    code: int | None, said: str, verdict: str, reason: str
) -> None:
    examined = (Examination("another", 0, ""), Examination("a tool", code, said))
    found = judge_state(replace(recovered(parents="2"), examined=examined), ACKNOWLEDGED, SIZE, DEEP)
    assert (found.verdict, found.reason, found.lost) == (verdict, reason, 0)
    lost = recovered(parents="2", sessions="[[0, 4, 1, 4], [1, 3, 1, 3]]", indexed="[7, 10]")
    assert judge_state(replace(lost, examined=examined), ACKNOWLEDGED, SIZE, DEEP).lost == 1


def test_the_check_of_parents_is_needed_where_it_was_asked() -> None:
    assert judge_state(recovered(), ACKNOWLEDGED, SIZE, DEEP).verdict == "unknown"
    assert judge_state(recovered(parents="1"), ACKNOWLEDGED, SIZE, DEEP).verdict == "corrupt"
    assert "bt_index_parent_check" in render_check(DEEP)


def test_wrong_objects_are_named_and_counted_where_they_were_asked_for() -> None:
    """As are places in tables that both looks count."""
    wrong = recovered(
        parents="2",
        heaps='{"damaged places in tables": 1}',
        relations='{"damaged places in tables": 2}',
        objects='{"large objects": 4, "relations without a file": 0}',
    )
    found = judge_state(wrong, ACKNOWLEDGED, SIZE, DEEP)
    assert (found.verdict, found.reason) == ("corrupt", "wrong: damaged places in tables (3), large objects (4)")
    assert judge_state(recovered(parents="2"), ACKNOWLEDGED, SIZE, DEEP) == Judged("held")
    without = Answers({name: value for name, value in GOOD.items() if name != "objects"} | {"parents": "2"}, ())
    assert judge_state(replace(recovered(), answers=without), ACKNOWLEDGED, SIZE, DEEP).verdict == "unknown"


def test_objects_are_checked_without_any_extension() -> None:
    assert checks_of((), major=13, deep=True) == ("objects",)
    (line,) = (line for line in render_check(("objects",)).splitlines() if line.endswith("AS objects;"))
    assert all(f"'{name}', (" in line for name in ("relations without a file", *LEDGER.kinds))
    (line,) = (line for line in render_check(("objects",), TPCB_LIKE).splitlines() if line.endswith("AS objects;"))
    assert "ledger" not in line


def state(verdict: StateVerdict, lost: int = 0) -> StateRecord:
    return StateRecord(
        id="0.1", cut=9, how="nothing kept", volatile=3, kept=0, digest="ab", acknowledged=5, verdict=verdict, lost=lost
    )


@pytest.mark.parametrize(
    ("states", "verdict"),
    [
        ([], "unknown"),
        (["held", "held"], "held"),
        (["held", "unknown"], "unknown"),
        (["unknown", "repair", "held"], "repair"),
        (["repair", "lost"], "lost"),
        (["unknown", "lost"], "lost"),
        (["lost", "corrupt", "held"], "corrupt"),
    ],
)
def test_a_stack_is_as_good_as_its_worst_state(states: list[StateVerdict], verdict: str) -> None:
    found = summarise(CrashRecord(stack="ext4", seed=1), [state(one, lost=3) for one in states])
    assert found.verdict == verdict
    assert found.states == len(states)
    assert (found.first_counterexample is None) == (verdict in ("held", "unknown"))


def test_states_by_lot_count_once_an_epoch_and_those_of_a_recovery_not_at_all() -> None:
    many: list[tuple[dict[str, object], int]] = [
        ({"drawn": 4}, 9),
        ({"drawn": 4}, 7),
        ({"drawn": 5}, 6),
        ({}, 7),
        ({"drawn": 6, "interrupts": "1.1"}, 0),
    ]
    states = [state("held").model_copy(update={**of, "volatile": volatile}) for of, volatile in many]
    found = summarise(CrashRecord(stack="ext4", seed=1), states)
    assert (found.states, found.nested, found.drawn, found.many_volatile) == (5, 1, 2, 3)


def test_flushes_are_those_between_the_marks() -> None:
    lines = [("begin", 7), ("ack 0 1 7.0", 8), ("fault", 30), ("end", 90)]
    text = "\n".join(json.dumps({"seq": 1, "text": text, "flushes": flushes}) for text, flushes in lines)
    assert count_flushes(text, "begin", "end") == 83
    assert count_flushes(text, "fault", "end") == 60
    with pytest.raises(NotUnderstood):
        count_flushes(text, "begin", "gone")


def test_marks_of_a_program_from_before_an_update_name_what_mends_it() -> None:
    with pytest.raises(NotUnderstood, match="'flushes': the program is of another version") as error:
        count_flushes('{"seq": 4, "text": "begin"}\n', "begin", "end")
    assert error.value.hint == "make setup builds it again"


def test_requested_states_that_were_not_checked_leave_the_stack_unknown() -> None:
    asked = CrashRecord(stack="ext4", seed=1, missing=19, unknown_reason="the worker ended with -9")
    assert summarise(asked, [state("held")]).verdict == "unknown"
    assert summarise(asked, [state("held")]).unknown_reason == "the worker ended with -9"
    assert summarise(asked, [state("lost", lost=3)]).verdict == "lost"


def test_the_reason_is_that_of_the_first_unknown_state() -> None:
    states = [state("held"), state("unknown").model_copy(update={"reason": "no loop device"}), state("unknown")]
    assert summarise(CrashRecord(stack="ext4", seed=1), states).unknown_reason == "no loop device"


def test_acknowledgements_count_up_to_the_cut() -> None:
    marks = parse_marks(
        '{"seq": 4, "text": "begin"}\n{"seq": 9, "text": "ack 0 1 70.5"}\n'
        '{"seq": 12, "text": "ack 1 1 70.6"}\n{"seq": 15, "text": "ack 0 2 70.9"}\n'
    )
    assert acknowledged_by(marks, 8) == {}
    assert acknowledged_by(marks, 12) == {0: 1, 1: 1}
    assert acknowledged_by(marks, 15) == {0: 2, 1: 1}


@pytest.mark.parametrize(
    ("entries", "cut", "lost_s"),
    [
        ({0: 1, 1: 1}, 20, 0.1),
        ({0: 1}, 20, 0.4),
        ({}, 9, 0.1),
        ({}, 20, 0.5),
        ({0: 9, 1: 9}, 20, 0.0),
        ({}, 8, 0.0),
    ],
)
def test_the_time_of_a_loss_is_from_the_oldest_missing_one_to_the_acknowledgement_after_the_cut(
    entries: dict[int, int], cut: int, lost_s: float
) -> None:
    marks = (Mark(9, 0, 1, 7.0), Mark(12, 1, 1, 7.1), Mark(15, 0, 2, 7.4), Mark(21, 1, 2, 7.5))
    assert lost_time_s(marks, entries, cut) == pytest.approx(lost_s)


def test_the_longest_loss_counts_and_only_the_newest_are_gone_where_the_tables_are_there() -> None:
    states = [state("lost", lost=3).model_copy(update={"lost_s": lost_s}) for lost_s in (0.02, 0.34)]
    found = summarise(CrashRecord(stack="ext4", seed=1), [*states, state("held")])
    assert (found.lost_max_s, found.newest_only) == (0.34, True)
    gone = states[0].model_copy(
        update={"reason": judged(recovered(('ERROR:  schema "ledger" does not exist',))).reason}
    )
    assert not summarise(CrashRecord(stack="ext4", seed=1), [*states, gone]).newest_only
    assert not summarise(CrashRecord(stack="ext4", seed=1), [*states, state("corrupt")]).newest_only
    assert summarise(CrashRecord(stack="ext4", seed=1), [state("held")]).lost_max_s is None


def test_what_a_single_user_server_prints_is_read() -> None:
    printed = (
        "\nPostgreSQL stand-alone backend 15.14\n"
        "backend> \t 1: sessions\t(typeid = 25, len = -1, typmod = -1, byval = f)\n\t----\n"
        '\t 1: sessions = "[[0, 5, 1, 5]]"\t(typeid = 25, len = -1, typmod = -1, byval = f)\n\t----\n'
        'backend> \t 1: end = "reached"\t(typeid = 25, len = -1, typmod = -1, byval = f)\n'
    )
    answers = parse_answers(printed, "2026 [1] LOG:  redo done\n2026 [1] ERROR:  invalid page\n")
    assert answers.values == {"sessions": "[[0, 5, 1, 5]]", "end": "reached"}
    assert answers.complete
    assert answers.errors == ("2026 [1] ERROR:  invalid page",)


def test_every_statement_of_a_check_is_one_line_and_amcheck_is_asked_where_it_is() -> None:
    with_all = render_check(EVERYTHING)
    assert all(line.endswith(";") for line in with_all.splitlines())
    assert ("bt_index_check" in with_all, "verify_heapam" in with_all) == (True, True)
    assert "verify_heapam" not in render_check(checks_of((AMCHECK,), major=13))
    assert "bt_index_check" not in render_check(checks_of((), major=18))


@pytest.mark.parametrize(
    ("changed", "verdict", "lost", "found"),
    [
        ({}, "repair", 0, "everything that was acknowledged is there"),
        ({"sessions": "[[0, 5, 1, 5]]", "indexed": "[5, 10]"}, "lost", 2, "2"),
    ],
)
def test_a_filesystem_that_needs_repair_is_judged_by_what_is_there_after_it(
    changed: dict[str, str], verdict: str, lost: int, found: str
) -> None:
    there = Answers({**GOOD, **changed}, ())
    broken = Recovery(mounted=32, mount_error="no", server=0, answers=there, mended="e2fsck -y <data.0>")
    told = judged(broken)
    assert (told.verdict, told.lost) == (verdict, lost)
    expected = f"the filesystem cannot be mounted: no; after e2fsck -y <data.0> it can, and {found}"
    assert told.reason.startswith(expected)
    assert judged(replace(broken, mended="")).lost == 7


HISTORY = LedgerSize(accounts=10, script=TPCB_LIKE)
HOLDERS = 10 + TPCB_LIKE.holders_beside
OF_HISTORY = {
    "sessions": "[[0, 5, 1, 5, 0], [1, 3, 1, 3, 0]]",
    "balances": f"[{HOLDERS}, 0, 0]",
    "indexed": f"[{HOLDERS}]",
    "indexes": "3",
}


def judged_history(changed: dict[str, str], errors: tuple[str, ...] = ()) -> Judged:
    return judge_state(recovered(errors, **{**OF_HISTORY, **changed}), ACKNOWLEDGED, HISTORY, EVERYTHING)


@pytest.mark.parametrize(
    ("changed", "verdict", "lost", "words"),
    [
        ({}, "held", 0, ""),
        ({"sessions": "[[0, 4, 1, 4, 0], [1, 3, 1, 3, 0]]"}, "lost", 1, "1 acknowledged"),
        ({"sessions": "[[0, 5, 1, 6, 0], [1, 3, 1, 3, 0]]"}, "corrupt", 0, "5 rows of history from 1 to 6"),
        ({"sessions": "[[0, 5, 1, 5, 1], [1, 3, 1, 3, 0]]"}, "corrupt", 0, "1 are there twice"),
        ({"sessions": "[[0, 7, 1, 7, 0], [1, 3, 1, 3, 0]]"}, "corrupt", 0, "not been written yet"),
        ({"balances": f"[{HOLDERS}, 7, 0]"}, "corrupt", 0, "sums are 7 apart"),
        ({"balances": f"[{HOLDERS}, 0, 2]"}, "corrupt", 0, "2 balances are not the sum of their rows of history"),
        ({"balances": f"[{HOLDERS - 1}, 0, 0]", "indexed": f"[{HOLDERS - 1}]"}, "corrupt", 0, f"of {HOLDERS} are"),
        ({"indexed": f"[{HOLDERS - 1}]"}, "corrupt", 0, "their indexes"),
        ({"indexed": "[]"}, "corrupt", 0, "their indexes"),
        ({"indexes": "2"}, "corrupt", 0, "2 of the 3 indexes"),
    ],
)
def test_what_pgbench_wrote_is_judged_by_its_history(
    changed: dict[str, str], verdict: StateVerdict, lost: int, words: str
) -> None:
    found = judged_history(changed)
    assert (found.verdict, found.lost) == (verdict, lost)
    assert words in found.reason


def test_tables_of_pgbench_that_are_not_there_are_a_total_loss() -> None:
    found = judged_history({}, ('ERROR:  relation "pgbench_history" does not exist at character 9',))
    assert found == Judged("lost", "nothing of pgbench's tpcb-like is there", 7)


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=lambda script: script.name)
def test_all_tables_of_a_script_are_made_and_looked_at(script: Script) -> None:
    schema = render_schema(LedgerSize(accounts=10, script=script), ())
    check = render_check(DEEP, script)
    assert all(line.endswith(";") for line in check.splitlines())
    assert schema.count("PRIMARY KEY") == script.indexes
    for table in script.tables:
        assert f"CREATE TABLE {table} " in schema
        assert (f"verify_heapam('{table}')" in check, check.count(f"'{table}'::regclass")) == (True, 2)


@pytest.mark.parametrize(
    ("counts", "verdict"), [('{ "condition 1" : 0 }', "held"), ('{ "condition 1" : 0, "condition 12" : 3 }', "corrupt")]
)
def test_conditions_of_a_load_are_part_of_the_verdict(counts: str, verdict: str) -> None:
    values = {
        "conditions": counts,
        "end": "reached",
        "sessions": "[]",
        "balances": "[16000, 0, 0]",
        "indexed": "[0, 16000]",
    }
    found = judge_state(Recovery(0, server=0, answers=Answers(values, ())), {}, LedgerSize(), ())
    assert found.verdict == verdict
    assert ("wrong: condition 12 (3)" in found.reason) == (verdict == "corrupt")


def test_the_conditions_of_tpcc_are_one_line_of_a_single_user_server() -> None:
    text = render_check((), LEDGER, TpccDriver().state_conditions)
    (line,) = (line for line in text.splitlines() if "AS conditions" in line)
    assert line.endswith(") c;")
    assert ":fresh" not in line
    assert "--" not in line
