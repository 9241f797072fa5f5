"""Steps are run as planned or not at all, and everything that happens is told, of several trials at once too."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from fake_host import FakeHost, completed
from following import differences
from pgstrata.cli.progress import BlockClock, Lines, LiveLine
from pgstrata.errors import TrialError
from pgstrata.host.protocol import Command, command
from pgstrata.record.recorder import TrialRecorder
from pgstrata.record.schema import AttestedRecord, TrialVerdict
from pgstrata.spec.campaign import Trial
from pgstrata.spec.workload import Cell
from pgstrata.stack.build import StepRunner
from pgstrata.stack.journal import Journal
from pgstrata.stack.step import PlannedCommand, Ref, Step, planned
from pgstrata.trial.events import (
    AttestedRows,
    BlockBegun,
    CommandRun,
    Event,
    EventLog,
    Notice,
    StepBegun,
    StepEnded,
    TrialBegun,
    TrialEnded,
)
from pgstrata.trial.executor import KILL_HOOK, Executor, Identity, NotAsPlanned
from pgstrata.trial.interruption import Interrupted, Interruption

BOOT = {"/proc/sys/kernel/random/boot_id": "b\n"}


def answer(asked: Command) -> object:
    return completed(asked.argv, stdout=" ".join(asked.argv[1:]))


class Bed:
    """An executor on a host in memory, and what it told."""

    def __init__(self, *, limit_s: float = 60.0, trial: str = "t1") -> None:
        self.host = FakeHost(answer=answer, files=BOOT)  # type: ignore[arg-type]
        self.told: list[Event] = []
        self.interruption = Interruption()
        self.executor = Executor(self.host, Identity("c", trial), self.told.append, self.interruption, limit_s)
        self.runner = StepRunner(self.host, Journal.create(self.host, trial))

    def run(self, *steps: Step) -> None:
        self.executor.run(steps, self.runner, self)

    @property
    def commands(self) -> list[tuple[str, str]]:
        return [(e.kind, e.command.text) for e in self.told if isinstance(e, CommandRun)]

    @property
    def ends(self) -> list[tuple[str, str]]:
        return [(e.step, e.error) for e in self.told if isinstance(e, StepEnded)]


def act(do: Callable[[Bed], object]) -> Callable[[Bed], None]:
    def acting(bed: Bed) -> None:
        do(bed)

    return acting


class TestPlan:
    def test_commands_run_in_order_with_what_is_found_out(self) -> None:
        bed = Bed()
        bed.run(
            Step("find", (planned("echo", "/dev/loop7"),), binds="data.0"),
            Step("make", (planned("mkfs", Ref("data.0")), planned("mount", Ref("data.0", base=True)))),
        )
        texts = ["echo /dev/loop7", "mkfs /dev/loop7", "mount loop7"]
        assert bed.commands == [("command", text) for text in texts]
        assert bed.ends == [("find", ""), ("make", "")]

    @pytest.mark.parametrize(
        ("asked", "run"),
        [
            (("one",), ("two",)),
            (("one", "a"), ("one", "b")),
            (("one",), ("one", "a")),
        ],
    )
    def test_what_is_not_planned_is_not_run(self, asked: tuple[str, ...], run: tuple[str, ...]) -> None:
        bed = Bed()
        with pytest.raises(NotAsPlanned, match="was about to run"):
            bed.run(Step("s", (planned(asked),), act=act(lambda bed: bed.host.run(command(run)))))
        assert [c.argv for c in bed.host.asked] == []
        assert bed.ends[0][1].startswith("NotAsPlanned: ")

    def test_another_user_is_another_command(self) -> None:
        bed = Bed()
        with pytest.raises(NotAsPlanned, match=r"as postgres.*planned is true \(as the caller"):
            bed.run(
                Step("s", (planned("true"),), act=act(lambda bed: bed.host.run(Command(("true",), user="postgres"))))
            )

    def test_one_command_more_is_refused(self) -> None:
        bed = Bed()
        more = Step("s", (), act=act(lambda bed: bed.host.start(command("x"), stdout="/o", stderr="/o")))
        with pytest.raises(NotAsPlanned, match="not in its plan"):
            bed.run(more)
        assert bed.host.asked == []

    def test_one_command_less_is_an_error(self) -> None:
        bed = Bed()
        with pytest.raises(NotAsPlanned, match="without running two"):
            bed.run(Step("s", (planned("one"), planned("two")), act=act(lambda bed: bed.executor.run_next())))

    def test_looks_are_free_and_told_apart(self) -> None:
        def look(bed: Bed) -> None:
            with bed.host.looking():
                bed.host.run(command("findmnt"))

        bed = Bed()
        bed.run(Step("s", (), act=look))
        with bed.executor.undoing():
            bed.host.run(command("umount", "/x"))
        bed.executor.close()
        bed.host.run(command("nobody", "listens"))
        assert bed.commands == [("look", "findmnt"), ("undo_command", "umount /x")]

    def test_what_runs_in_the_background_is_told_where_it_began(self) -> None:
        def measure(bed: Bed) -> None:
            probe = bed.executor.begin(command("probe"), look=False)
            bed.executor.run_next()
            assert bed.commands == []
            bed.executor.end(probe, 0, 2.5)

        bed = Bed()
        bed.run(Step("s", (planned("probe"), planned("pgbench")), act=measure))
        assert bed.commands == [("command", "probe"), ("command", "pgbench")]

    def test_what_has_not_ended_with_its_step_is_told_without_an_exit_code(self) -> None:
        bed = Bed()
        bed.run(Step("s", (planned("probe"),), act=act(lambda bed: bed.executor.begin(command("probe"), look=False))))
        (run,) = [e for e in bed.told if isinstance(e, CommandRun)]
        assert (run.exit_code, run.duration_s) == (None, None)

    def test_a_difference_is_found_by_the_comparison_of_plan_and_events(self) -> None:
        asked = [("a", [["mkfs", "<data.0>"], ["mount", "/dev/<data.0>"]])]
        assert differences(asked, [("a", [["mkfs", "/dev/loop1"], ["mount", "/dev/loop1"]])]) == []
        assert differences(asked, [("a", [["mkfs", "/dev/loop1"], ["mount", "/dev/loop2"]])]) != []
        assert differences(asked, [("a", [["mkfs", "/dev/loop1"]])]) != []
        assert differences(asked, [("b", [])]) != []


def test_a_forked_process_counts_its_own_steps_for_the_kill_hook() -> None:
    Bed().run(Step("before", ()), Step("too", ()))
    child = os.fork()
    if child == 0:
        os.environ[KILL_HOOK] = "2"
        try:
            Bed().run(Step("first", ()))
            Bed().run(Step("second", ()))
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


class TestTime:
    def test_no_step_begins_after_the_trials_time(self) -> None:
        bed = Bed(limit_s=-1.0)
        with pytest.raises(TrialError, match="aborted before step late"):
            bed.run(Step("late", (planned("x"),)))
        assert bed.host.asked == []

    def test_no_step_begins_after_a_signal(self) -> None:
        bed = Bed()
        bed.interruption.received = "SIGINT"
        with pytest.raises(Interrupted):
            bed.run(Step("late", (planned("x"),)))
        assert bed.told == []

    def test_what_is_left_is_what_is_known_of_the_steps_to_come(self) -> None:
        bed = Bed()
        bed.run(Step("a", (), expected_s=10.0), Step("b", ()), Step("c", (), expected_s=60.0))
        assert [(e.expected_s, e.left_s) for e in bed.told if isinstance(e, StepBegun)] == [
            (10.0, 70.0),
            (None, 60.0),
            (60.0, 60.0),
        ]


def trial(name: str) -> Trial:
    cell = Cell(script="tpcb-like", scale=1, clients=1)
    return Trial(
        id=name, stack=name, block=0, position=0, stage="screen", load="fresh", scale=1, cells=(cell,), workload_seed=1
    )


def test_two_trials_at_once_are_told_apart(tmp_path: Path) -> None:
    """Two hosts, two threads, one campaign: every event says whose it is, and each trial has a log of its own."""
    told: list[Event] = []
    live = LiveLine(BlockClock(None))
    shown: list[str] = []
    logs = {}
    barrier = threading.Barrier(2, timeout=60)

    def run(name: str) -> None:
        recorder = TrialRecorder(trial(name), tmp_path / name, tmp_path / "final")
        logs[name] = recorder.partial / "events.jsonl"

        def tell(event: Event) -> None:
            EventLog(recorder)(event)
            told.append(event)
            live(event)

        host = FakeHost(answer=answer, files=BOOT)  # type: ignore[arg-type]
        executor = Executor(host, Identity("c", name), tell, Interruption(), 60.0)
        runner = StepRunner(host, Journal.create(host, name))
        live(TrialBegun("c", trial(name)))
        steps = [
            Step(f"{name} step {i}", (planned("echo", name, str(i)),), act=partial(meet, executor)) for i in range(20)
        ]
        executor.run(steps, runner, None)

    def meet(executor: Executor, context: object) -> None:
        barrier.wait()  # both are in the same step now
        if executor.identity.trial == "a":
            shown.append(live.line)
        barrier.wait()
        executor.run_next()

    threads = [threading.Thread(target=run, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(shown) == 20
    assert all(f"a step {i}" in line and f"b step {i}" in line for i, line in enumerate(shown))
    for name, log in logs.items():
        events = [json.loads(line) for line in log.read_text().splitlines()]
        kinds = [e["event"] for e in events]
        assert kinds == ["step_begun", "command", "step_ended"] * 20
        assert [e["argv"] for e in events if e["event"] == "command"] == [["echo", name, str(i)] for i in range(20)]
    for event in told:
        assert isinstance(event, StepBegun | StepEnded | CommandRun)
        assert event.step.startswith(event.trial)
    live(TrialEnded("c", trial("a"), TrialVerdict(trial_id="a", status="ok")))
    live(TrialEnded("c", trial("b"), TrialVerdict(trial_id="b", status="ok")))
    assert live.line == ""


def test_lines_tell_of_blocks_trials_and_notices() -> None:
    lines: list[str] = []
    listener = Lines(BlockClock(None), lines.append)
    verdict = TrialVerdict(trial_id="a", status="failed", reason="why\nand more", duration_s=61.0)
    for event in (
        BlockBegun("c", 0, 2, "screen", "first"),
        StepBegun("c", "a", "mkfs"),
        TrialEnded("c", trial("a"), verdict),
        Notice("look here"),
    ):
        listener(event)
    assert lines == [
        "block 1, screen: 2 trials (first)",
        "  a, block 1, scale 1: failed in 1 min 1 s: why; block ends in about 1 min 1 s",
        "look here",
    ]


def test_hosts_that_run_side_by_side_end_a_block_together() -> None:
    lines: list[str] = []
    listener = Lines(BlockClock(None), lines.append)
    listener(BlockBegun("c", 0, 12, "screen", "", hosts=4))
    for _ in range(5):
        listener(TrialEnded("c", trial("a"), TrialVerdict(trial_id="a", status="ok", duration_s=60.0)))
    assert [line.rsplit("about ")[-1] for line in lines[1:]] == ["3 min", "3 min", "3 min", "2 min", "2 min"]


def test_a_crash_trial_is_called_one() -> None:
    lines: list[str] = []
    listener = Lines(BlockClock(None), lines.append)
    listener(BlockBegun("c", 0, 1, "screen", ""))
    cut = trial("a").model_copy(update={"cells": ()})
    listener(TrialEnded("c", cut, TrialVerdict(trial_id="a", status="ok", duration_s=21.0)))
    assert lines == ["block 1, screen: 1 trial", "  crash trial of a: ok in 21 s"]


def test_the_budget_that_is_left_counts_what_earlier_sessions_took() -> None:
    lines: list[str] = []
    now_s = iter((5.0, 15.0)).__next__
    listener = Lines(BlockClock(180.0, now_s), lines.append)
    listener(BlockBegun("c", 3, 1, "screen", "", spent_s=100.0))
    listener(TrialEnded("c", trial("a"), TrialVerdict(trial_id="a", status="ok", duration_s=9.0)))
    assert lines[-1].endswith("; budget left 1 min 10 s")


def test_what_was_attested_and_said_is_in_the_log(tmp_path: Path) -> None:
    recorder = TrialRecorder(trial("a"), tmp_path, tmp_path / "final")
    log = EventLog(recorder)
    row = AttestedRecord(what="mount", expected="rw", actual="ro", holds=False)
    log(AttestedRows("c", "a", (row,)))
    log(Notice("made anew"))
    log(TrialEnded("c", trial("a"), TrialVerdict(trial_id="a", status="failed", reason="attestation")))
    log(TrialBegun("c", trial("a")))
    attested, note, verdict = (json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines())
    assert attested["rows"][0] == {"what": "mount", "expected": "rw", "actual": "ro", "holds": False, "moment": "built"}
    assert note["text"] == "made anew"
    assert (verdict["event"], verdict["status"], verdict["reason"]) == ("verdict", "failed", "attestation")


def test_a_known_command_needs_no_values() -> None:
    known = Command(("psql",), timeout_s=5.0, stdin="SELECT 1", user="u", env=(("A", "b"),), cwd="/")
    assert PlannedCommand.of(known).resolve({}) == known


def _with_another(bed: Bed) -> FakeHost:
    """A second host of the trial, which nodes are on."""
    there = FakeHost(answer=answer, files=BOOT, name="db2")  # type: ignore[arg-type]
    bed.executor = Executor(bed.host, Identity("c", "t1"), bed.told.append, bed.interruption, 60.0, {"db2": there})
    runner = StepRunner(there, Journal.create(there, "t1"), bindings=bed.runner.bindings, at="db2")
    bed.runner.elsewhere = {"db2": runner}
    return there


def test_each_command_runs_on_its_own_host_and_no_other() -> None:
    bed = Bed()
    _with_another(bed)
    bed.run(Step("near", (planned("true", "a"),)), Step("far", (planned("true", "b"),)).on("db2"))
    both = Step("both", (planned("true", "c"), PlannedCommand.of(command("true", "d"), "db2")))
    bed.run(both)
    bed.run(Step("acts", both.commands, act=act(lambda b: (b.executor.run_next(), b.executor.run_next()))))
    ran = [f"{e.command.text} {e.host}" for e in bed.told if isinstance(e, CommandRun)]
    assert ran == ["true a fake", "true b db2", "true c fake", "true d db2", "true c fake", "true d db2"]
    assert [name for name, _ in bed.ends] == ["near", "far on db2", "both", "acts"]


@pytest.mark.parametrize("planned_on", ["", "db2"])
def test_a_command_on_another_host_than_planned_is_refused(planned_on: str) -> None:
    bed = Bed()
    there = _with_another(bed)
    runs_on = there if planned_on == "" else bed.host

    def run(_: Bed) -> None:
        runs_on.run(command("true"))

    with pytest.raises(NotAsPlanned, match="was about to run true"):
        bed.run(Step("s", (PlannedCommand.of(command("true"), planned_on),), act=run))
