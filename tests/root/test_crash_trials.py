"""Crash trials on real filesystems: what must hold holds, what must be lost is found, and nothing is left."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from awaiting import wait_until
from campaigning import clean, environment, nothing_left, reachable, run_in_fork, write_campaign
from crashed import read_crashes
from pgstrata.crash import job, program
from pgstrata.crash.event_log_archive import kept_log, state_file
from pgstrata.crash.job import Seen
from pgstrata.crash.ledger import BEGIN, END
from pgstrata.crash.verdict import UNMOUNTABLE
from pgstrata.host import delivery
from pgstrata.host.protocol import Command
from pgstrata.record.crash import StateRecord
from pgstrata.record.reader import read
from pgstrata.record.source import FolderSource

DISK = Path(sys.executable).parent / "strata-disk"
pytestmark = pytest.mark.skipif(not DISK.exists(), reason="strata-disk is not built: cargo is missing")


def crash(folder: Path, *words: str, around: AbstractContextManager[object] | None = None) -> dict[str, Any]:
    """The durability of each stack, by name."""
    out, printed = folder / "out", folder / "printed"
    argv = ["crash", "--transactions", "10", *words, "--out", str(out), "--scratch", str(folder / "scratch")]
    code = run_in_fork([*argv, "--json", "--quiet"], environment(folder), printed, around)
    text = printed.read_text()
    assert code == 0, text
    found = json.loads(text[text.index("{") :])
    return {stack["name"]: stack["durability"] for stack in found["stacks"]}


def test_states_that_nobody_examined_are_told_and_fail_the_trial(tmp_path: Path) -> None:
    with reachable(tmp_path) as place:
        out, printed = place / "out", place / "printed"
        words = ["crash", "ext4", "--states", "400", "--transactions", "40", "--workers", "1", "--minimise", "0"]
        argv = [*words, "--nested", "0", "--out", str(out), "--scratch", str(place / "scratch"), "--quiet"]
        with _daemon_killed(place):
            code = run_in_fork(argv, environment(place), printed)
        text = printed.read_text()
        assert code == 4, text
        (found,) = (crash.found for crash in read(out).crashes)
        assert found.missing > 0
        assert found.states + found.missing == 400
        assert f"{found.missing} requested states not checked" in text
        assert found.unknown_reason in text
        # The same command resumes what it has: nothing is left to run, and what is missing is still told.
        assert run_in_fork(argv, environment(place), printed) == 4
        assert "nothing is left to run" in printed.read_text()
        other = [word if word != "400" else "401" for word in argv]
        assert run_in_fork(other, environment(place), printed) == 2
        assert "two requests do not go into one folder" in printed.read_text()
        clean(place)


@contextmanager
def _daemon_killed(place: Path) -> Iterator[None]:
    """Kills the daemon of the states once one of them was examined."""

    def processes(*words: str) -> list[int]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                line = (process / "cmdline").read_text()
                found += [int(process.name)] * all(word in line for word in words)
        return found

    def begun() -> bool:
        return any('"step":"states 1' in file.read_text() for file in place.glob("out/crash/.*/events.jsonl"))

    def kill_it() -> None:
        wait_until(begun, "a worker that examines states")
        time.sleep(1.0)  # some of the hundreds of states
        for pid in processes("serve", f"{place}/", "states"):
            os.kill(pid, signal.SIGKILL)

    killer = Thread(target=kill_it)
    killer.start()
    yield
    killer.join()


def measured(log: Path, states: list[str]) -> list[Any]:
    """What `strata-disk measure` says of states on a log."""
    done = subprocess.run(
        [DISK, "measure", log], input="".join(states), capture_output=True, text=True, check=True, timeout=300
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_stack_that_flushes_holds_and_one_that_does_not_loses(tmp_path: Path) -> None:
    with reachable(tmp_path) as place:
        found = crash(place, "ext4", "ext4@fsync=off", "--states", "6")
        nothing_left(place)
        assert [one.stack for one in read_crashes(FolderSource(place / "out"))] == list(found)
        trial = place / "out" / "crash" / "ext4-0"
        states = [StateRecord.model_validate_json(line) for line in (trial / "states.jsonl").read_text().splitlines()]
        planned = json.loads((trial / "planned.json").read_text())
    held, lost = found["ext4"], found["ext4@fsync=off"]
    assert (held["verdict"], held["states"], held["lost_acknowledged_max"]) == ("held", 6, 0)
    assert (lost["verdict"] in ("lost", "corrupt"), lost["class"]) == (True, "loses on power loss")
    assert lost["lost_acknowledged_max"] > 0
    assert lost["first_counterexample"]
    assert len({state.digest for state in states}) == len(states) == 6
    assert any(step["name"] == "keep the event log" for step in planned["steps"])
    assert any(state.acknowledged > 0 for state in states)
    assert [step["name"] for step in planned["steps"] if step["name"].startswith("states ")] == ["states 1.0 to 1.5"]


def test_several_recordings_are_in_one_log_with_more_checkpoints(tmp_path: Path) -> None:
    with reachable(tmp_path) as place:
        found = crash(place, "ext4", "--transactions", "200", "--states", "6", "--nested", "0")["ext4"]
        (record,) = (one for one in read_crashes(FolderSource(place / "out")))
        nothing_left(place)
    assert (found["verdict"], found["states"]) == ("held", 6)
    assert (found["recordings"], found["checkpoints"]) == (2, 100 // 20 + 100 // 4)
    assert record.transactions == 8 * 200


def test_a_held_verdict_can_be_verified_and_damage_to_its_evidence_shows(tmp_path: Path) -> None:
    with reachable(tmp_path) as place:
        assert crash(place, "ext4", "--states", "6")["ext4"]["verdict"] == "held"
        out, printed = place / "out", place / "verified"
        raw = out / "crash" / "ext4-0" / "raw"
        log, choices = raw / "events.log.gz", raw / "choices.jsonl"
        packed, lines = log.read_bytes(), choices.read_text()

        def verified() -> tuple[int, str]:
            printed.unlink(missing_ok=True)
            code = run_in_fork(["crash", "verify", str(out)], environment(place), printed)
            return code, printed.read_text()

        assert verified()[0] == 0
        assert "ext4: 6 states are made as recorded" in verified()[1]
        changed = bytearray(gzip.decompress(packed))
        changed[len(changed) // 2] ^= 1
        log.write_bytes(gzip.compress(bytes(changed), 1))
        code, text = verified()
        assert code == 4, text
        assert "event log is damaged: checksum" in text
        log.write_bytes(packed[: len(packed) // 2])
        code, text = verified()
        assert (code, "the event log is damaged" in text) == (4, True), text
        log.write_bytes(packed)
        choices.write_text("".join(lines.splitlines(keepends=True)[1:]))
        code, text = verified()
        assert (code, len(re.findall("the choice of state 1.[0-5] is missing", text))) == (4, 1), text
        first, second = (json.loads(line)["digest"] for line in lines.splitlines()[:2])
        swap = {first: second, second: first}
        choices.write_text(re.sub(f"{first}|{second}", lambda found: swap[found[0]], lines))
        code, text = verified()
        assert (code, "when it is made of the event log" in text) == (4, True), text
        choices.write_text(lines)
        log.unlink()
        code, text = verified()
        assert (code, "events.log.gz is not kept" in text) == (4, True), text
        shutil.rmtree(out)
        (place / "printed").unlink()
        crash(place, "ext4", "--states", "2", "--keep-log-mib", "0")
        assert not log.exists()
        nothing_left(place)


def test_a_medium_that_keeps_its_cache_needs_no_flush(tmp_path: Path) -> None:
    with reachable(tmp_path) as place:
        kept, lost = (f"media({model})/ext4:nobarrier" for model in ("nvme", "none"))
        found = crash(place, kept, lost, "--states", "20", "--minimise", "0")
        nothing_left(place)
    assert (found[kept]["verdict"], found[kept]["class"]) == ("held", "survives power loss")
    assert (found[lost]["verdict"] in ("lost", "corrupt"), found[lost]["class"]) == (True, "loses on power loss")


def test_a_filesystem_without_a_journal_is_repaired_before_it_is_looked_at(tmp_path: Path) -> None:
    """By `e2fsck -p`, or by hand where that gives up: what is there then is not told as lost."""
    with reachable(tmp_path) as place:
        found = crash(place, "ext4:nojournal", "--states", "60", "--transactions", "1000", "--minimise", "0")[
            "ext4:nojournal"
        ]
        nothing_left(place)
        lines = (place / "out" / "crash" / "ext4-nojournal-0" / "states.jsonl").read_text().splitlines()
    states = [StateRecord.model_validate_json(line) for line in lines]
    whole = [
        s for s in states if re.search("after e2fsck -f -y .*everything that was acknowledged is there$", s.reason)
    ]
    assert found["class"] == "unknown"
    assert found["verdict"] != "held"
    assert found["repair"] == len([state for state in states if state.verdict == "repair"]) > 0
    assert whole, [state.reason for state in states]
    assert {(state.verdict, state.lost) for state in whole} == {("repair", 0)}


def test_a_disk_that_ignores_flushes_is_caught_below_a_sound_stack(tmp_path: Path) -> None:
    with reachable(tmp_path) as place:
        file = place / "file.yaml"
        file.write_text("name: x\nstacks: [xfs]\ncrash: {states: 5, time: 5m}\n")
        found = crash(place, str(file), "--ignore-flushes", "all")
        nothing_left(place)
        raw = place / "out" / "crash" / "xfs-0" / "raw"
        log = place / "events.log"
        log.write_bytes(gzip.decompress((raw / "events.log.gz").read_bytes()))
        kept = [path.read_text() for path in sorted((raw / "states").iterdir())]
        assert kept
        assert measured(log, kept) == [json.loads(line) for line in kept]
    assert found["xfs"]["verdict"] in ("lost", "corrupt")
    assert found["xfs"]["states"] == 5, "as the campaign's file asks"
    assert found["xfs"]["lost_acknowledged_max"] > 0


@pytest.mark.parametrize(
    ("stack", "ignored"), [("ext4@synchronous_commit=off", "0"), ("ext4:nobarrier", "0"), ("ext4", "3")]
)
def test_what_is_acknowledged_before_it_is_durable_is_caught(stack: str, ignored: str, tmp_path: Path) -> None:
    with reachable(tmp_path) as place:
        words = ("--states", "20", "--transactions", "20", "--minimise", "0", "--nested", "0")
        found = crash(place, stack, *words, "--ignore-flushes", ignored)
        nothing_left(place)
    assert found[stack]["verdict"] in ("lost", "corrupt")
    assert found[stack]["lost_acknowledged_max"] > 0
    assert found[stack]["ignored_flushes"] == ignored


def test_a_log_on_a_volume_of_its_own_and_a_pair_of_disks_are_cut_at_one_moment(tmp_path: Path) -> None:
    with reachable(tmp_path) as place:
        words = ("--states", "6", "--workers", "2", "--minimise", "0")
        found = crash(place, "btrfs(raid1)@wal=xfs", "ext4@wal=ext4:nobarrier", *words)
        nothing_left(place)
    assert next(iter(found.values()))["verdict"] == "held"
    assert found["ext4@wal=ext4:nobarrier"]["verdict"] in ("lost", "corrupt")


def test_a_server_that_goes_on_after_a_failed_fsync_loses_and_one_that_panics_does_not(tmp_path: Path) -> None:
    words = ("--states", "12", "--transactions", "100", "--minimise", "0", "--nested", "0", "--fault", "write-error")
    with reachable(tmp_path) as place:
        found = crash(place, "ext4", "ext4@data_sync_retry=on", *words)
        nothing_left(place)
        records = {one.stack: one for one in read_crashes(FolderSource(place / "out"))}
    assert {name: (one.request.fault, one.panicked) for name, one in records.items()} == {
        "ext4": ("write-error", True),
        "ext4@data_sync_retry=on": ("write-error", False),
    }
    assert found["ext4"]["verdict"] == "held"
    unsound = found["ext4@data_sync_retry=on"]
    assert unsound["lost"] + unsound["corrupt"] >= 8, "most states are of after the checkpoint that failed"


def test_a_torn_page_comes_about_by_itself_and_is_made_small(tmp_path: Path) -> None:
    """As the ledger is written: nothing chooses the write that is torn."""
    stack = "ext4@full_page_writes=off"
    with reachable(tmp_path) as place:
        found = crash(place, stack, "--states", "100", "--transactions", "100", "--nested", "0")
        nothing_left(place)
        (crashed,) = read(place / "out").crashes
    assert found[stack]["verdict"] == "corrupt"
    assert crashed.minimal is not None
    lost = sum(one.length_bytes for one in crashed.minimal.places) // crashed.minimal.block_bytes
    assert 1 <= lost <= 16, "a page has 16 blocks"
    assert any((one.file or "").startswith("base/") for one in crashed.minimal.places)


def test_of_a_few_states_all_files_and_filesystems_are_read(tmp_path: Path) -> None:
    """The catalog's files, too, and what PostgreSQL does not read of a filesystem."""
    tools = {"ext4": "e2fsck", "xfs": "xfs_repair", "btrfs": "btrfs"}
    with reachable(tmp_path) as place:
        found = crash(place, *tools, "--states", "3")
        nothing_left(place)
        read = {
            stack: [StateRecord.model_validate_json(line).examined for line in states.read_text().splitlines()]
            for at, stack in enumerate(tools)
            for states in [place / "out" / "crash" / f"{stack}-{at}" / "states.jsonl"]
        }
    for stack, tool in tools.items():
        assert found[stack]["verdict"] == "held", found[stack]
        (examined,) = (one for one in read[stack] if one)
        assert examined[-1] == tool
        assert set(examined) <= {"pg_checksums", tool}


def test_what_a_tool_finds_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = Command(("/bin/sh", "-c", "echo 'bad checksums: 3'; exit 1"), 60)
    with reachable(tmp_path) as place:
        monkeypatch.setattr(job, "plan_checksums", lambda _: (check,))
        found = crash(place, "ext4", "--states", "2", "--minimise", "0")
        nothing_left(place)
    assert (found["ext4"]["verdict"], found["ext4"]["corrupt"]) == ("corrupt", 1)
    assert found["ext4"]["first_counterexample"].endswith(": sh: bad checksums: 3")


@pytest.mark.parametrize("file", ["2618", "2693", "2836"], ids=["rules", "their index", "toast"])
def test_a_missing_file_of_a_catalog_is_noticed_where_everything_is_read(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger does not write them, so recovery does not make them; where only its own tables are read they are not
    missed."""
    monkeypatch.setattr(job, "filler", lambda plan: f"{plan.data_directory}/base/5/{file}")
    with reachable(tmp_path) as place:
        found = crash(place, "ext4", "--states", "2", "--nested", "0", "--minimise", "0")["ext4"]
        nothing_left(place)
    assert (found["verdict"], found["states"], found["corrupt"]) == ("corrupt", 2, 1)


FLUSHED_FIRST = 100
"""Of the files of a cluster, each of which a server that recovers flushes before it begins; there are some 900."""


@contextmanager
def recoveries_kept() -> Iterator[None]:
    """As if every state of an interrupted recovery were lost, so that the record keeps it and the log of the recovery;
    what it really was stands in its reason."""
    judge = program._judge

    def judged(
        context: program.CrashContext, batch: program.Batch, state: program.ChosenState, seen: Seen
    ) -> StateRecord:
        record = judge(context, batch, state, seen)
        if batch.interrupts is None:
            return record
        context.recorder.write_text(state_file(record.id), state.line + "\n")
        return record.model_copy(update={"verdict": "lost", "reason": record.reason or record.verdict})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "_judge", judged)
        yield


def test_power_is_lost_again_while_states_are_recovered(tmp_path: Path) -> None:
    with reachable(tmp_path) as place:
        crash(place, "ext4", "--states", "6", "--nested", "1", "--minimise", "0", around=recoveries_kept())
        nothing_left(place)
        (record,) = read_crashes(FolderSource(place / "out"))
        trial = place / "out" / "crash" / "ext4-0"
        states = [StateRecord.model_validate_json(line) for line in (trial / "states.jsonl").read_text().splitlines()]
        nested = [state for state in states if state.interrupts is not None]
        (interrupted,) = [state for state in states if state.id in {one.interrupts for one in nested}]
        transactions, recovery = (unpacked(trial / kept_log(of), place) for of in (None, interrupted.id))
        begin, end = (next(one["seq"] for one in recovery.events if one.get("text") == text) for text in (BEGIN, END))
        first = {"id": 0, "cut": begin, "chosen": {"whole": "everything"}, "how": "", "volatile": 0, "kept": 0}
        (began_with,) = measured(recovery.log, [json.dumps({**first, "digest": ""}) + "\n"])
        lines = [(trial / state_file(one.id)).read_text() for one in nested]
        made = [one["digest"] for one in measured(recovery.log, lines)]
    # a superblock that is torn when it is mounted keeps ext4 from being mounted again
    assert all(one.reason == "held" or one.reason.startswith(UNMOUNTABLE) for one in nested)
    assert (record.states, record.nested) == (len(states), len(nested))
    assert len(states) - len(nested) == 6
    assert len(nested) >= 5
    assert all(one.id.startswith(f"{interrupted.id}.") for one in nested)
    assert began_with["digest"] == interrupted.digest, "it is the recovery of what the first cut had left"
    assert all(begin < one.cut <= end for one in nested)
    assert made == [one.digest for one in nested], "the log of the recovery has its states"
    assert len({one.digest for one in nested} | {interrupted.digest}) > len(nested), "each is another one"
    within = Counter(one["event"] for one in recovery.events if begin < one["seq"] < end)
    assert within["write"] > 0
    assert within["flush"] > FLUSHED_FIRST, "the server waits for the disk"
    acknowledged = sum(1 for one in transactions.events if is_acknowledged_by(one, interrupted.cut))
    assert {one.acknowledged for one in (interrupted, *nested)} == {acknowledged}, "what counts is the first cut"


@dataclass(frozen=True)
class Unpacked:
    """An event log, and what happened in it."""

    log: Path
    events: list[dict[str, Any]]


def unpacked(packed: Path, place: Path) -> Unpacked:
    log = place / packed.name.removesuffix(".gz")
    log.write_bytes(gzip.decompress(packed.read_bytes()))
    done = subprocess.run([DISK, "events", log], capture_output=True, text=True, check=True, timeout=120)
    return Unpacked(log, [json.loads(line) for line in done.stdout.splitlines()])


def is_acknowledged_by(event: dict[str, Any], cut: int) -> bool:
    return bool(event["event"] == "mark" and event["text"].startswith("ack ") and event["seq"] <= cut)


def test_a_run_promises_no_power_cuts_that_the_host_cannot_make(tmp_path: Path) -> None:
    """Without the program that has recorded disks; what was promised is what comes of it."""
    with reachable(tmp_path) as place, pytest.MonkeyPatch.context() as patch:
        file = write_campaign(place, "tmpfs", "ext4")
        file.write_text(f"{file.read_text()}crash: {{states: 2, time: 5s}}\n")
        patch.setattr(delivery, "OWN", place / "nowhere")
        patch.setattr(delivery, "PROGRAM", "a-disk-that-is-nowhere")
        assert run_in_fork(["run", str(file), "--out", str(place / "out")], environment(place), place / "log.txt") == 0
        nothing_left(place)
        told = (place / "log.txt").read_text().splitlines()
        verdicts = {one.found.stack: one.verdict for one in read(place / "out").crashes}
    promised = [line for line in told if line.startswith("power cuts: ")][:2]
    ext4 = next(line for line in promised if line.startswith("power cuts: ext4: not tested: "))
    assert "a-disk-that-is-nowhere is not installed" in ext4
    assert delivery.BUILDING in ext4
    assert not any(" states each" in line for line in told)
    assert verdicts["ext4"].status == "unsupported"
    assert "a-disk-that-is-nowhere is not installed" in verdicts["ext4"].reason


def test_of_pgbench_s_own_script_what_was_acknowledged_is_told_from_what_is_lost(tmp_path: Path) -> None:
    asked = "{states: 6, time: 5m, script: tpcb-like}"
    with reachable(tmp_path) as place:
        file = place / "file.yaml"
        file.write_text(f"name: x\nstacks: [ext4, 'ext4@fsync=off']\ncrash: {asked}\n")
        found = crash(place, str(file), "--minimise", "20")
        nothing_left(place)
        failing = sorted((place / "out" / "crash" / "ext4-fsync-off-1" / "raw" / "states").glob("1.*[0-9].json"))[0]
        named = failing.parents[2] / failing.stem
        argv = ["crash", "replay", str(named), "--scratch", str(place / "scratch")]
        replayed = run_in_fork(argv, environment(place), place / "replayed")
        assert (replayed, clean(place)) == (0, 0), (place / "replayed").read_text()
        nothing_left(place)
        records = read_crashes(FolderSource(place / "out"))
        planned = json.loads((place / "out" / "crash" / "ext4-0" / "planned.json").read_text())
    held, lost = found["ext4"], found["ext4@fsync=off"]
    assert (held["verdict"], held["states"], held["script"]) == ("held", 6, "tpcb-like"), held
    assert (lost["verdict"] in ("lost", "corrupt"), lost["lost_acknowledged_max"] > 0) == (True, True)
    assert {(one.request.script, one.transactions) for one in records} == {("tpcb-like", 80)}
    assert "record pgbench's tpcb-like" in [step["name"] for step in planned["steps"]]
