"""Crash trials on real filesystems: what must hold holds, what must be lost is found, and nothing is left."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from campaigning import environment, nothing_left, reachable, run_in_fork
from pgstrata.crash.verdict import UNMOUNTABLE
from pgstrata.record.reader import read_crashes
from pgstrata.record.schema import StateRecord
from pgstrata.record.source import FolderSource

pytestmark = pytest.mark.skipif(
    not (Path(sys.executable).parent / "strata-disk").exists(), reason="strata-disk is not built: cargo is missing"
)


def crash(folder: Path, *words: str) -> dict[str, Any]:
    """The durability of each stack, by name."""
    out, printed = folder / "out", folder / "printed"
    argv = ["crash", "--transactions", "10", *words, "--out", str(out), "--scratch", str(folder / "scratch")]
    code = run_in_fork([*argv, "--json", "--quiet"], environment(folder), printed)
    text = printed.read_text()
    assert code == 0, text
    found = json.loads(text[text.index("{") :])
    return {stack["name"]: stack["durability"] for stack in found["stacks"]}


def measured(log: Path, states: list[str]) -> list[Any]:
    """What `strata-disk measure` says of states on a log."""
    program = Path(sys.executable).parent / "strata-disk"
    done = subprocess.run(
        [program, "measure", log], input="".join(states), capture_output=True, text=True, check=True, timeout=300
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
    assert not any(step["name"] == "keep the event log" for step in planned["steps"])
    assert any(state.acknowledged > 0 for state in states)
    assert [step["name"] for step in planned["steps"] if step["name"].startswith("states ")] == ["states 1.0 to 1.5"]


def test_a_disk_that_ignores_flushes_is_caught_below_a_sound_stack(tmp_path: Path) -> None:
    with reachable(tmp_path) as place:
        found = crash(place, "xfs", "--states", "6", "--ignore-flushes", "all")
        nothing_left(place)
        raw = place / "out" / "crash" / "xfs-0" / "raw"
        log = place / "events.log"
        log.write_bytes(gzip.decompress((raw / "events.log.gz").read_bytes()))
        kept = [path.read_text() for path in sorted((raw / "states").iterdir())]
        assert kept
        assert measured(log, kept) == [json.loads(line) for line in kept]
    assert found["xfs"]["verdict"] in ("lost", "corrupt")
    assert found["xfs"]["lost_acknowledged_max"] > 0


def test_a_log_on_a_volume_of_its_own_and_a_pair_of_disks_are_cut_at_one_moment(tmp_path: Path) -> None:
    with reachable(tmp_path) as place:
        found = crash(place, "btrfs(raid1)@wal=xfs", "ext4@wal=ext4:nobarrier", "--states", "6", "--workers", "2")
        nothing_left(place)
    assert next(iter(found.values()))["verdict"] == "held"
    assert found["ext4@wal=ext4:nobarrier"]["verdict"] in ("lost", "corrupt")


def test_a_server_that_goes_on_after_a_failed_fsync_loses_and_one_that_panics_does_not(tmp_path: Path) -> None:
    words = ("--states", "24", "--transactions", "40", "--fault", "write-error")
    with reachable(tmp_path) as place:
        found = crash(place, "ext4", "ext4@data_sync_retry=on", *words)
        nothing_left(place)
        records = {one.stack: one for one in read_crashes(FolderSource(place / "out"))}
    assert {name: (one.fault, one.panicked) for name, one in records.items()} == {
        "ext4": ("write-error", True),
        "ext4@data_sync_retry=on": ("write-error", False),
    }
    assert found["ext4"]["verdict"] == "held"
    assert found["ext4@data_sync_retry=on"]["verdict"] in ("lost", "corrupt")


def test_power_is_lost_again_while_states_are_recovered(tmp_path: Path) -> None:
    with reachable(tmp_path) as place:
        crash(place, "ext4", "--states", "2", "--nested", "1")
        nothing_left(place)
        (record,) = read_crashes(FolderSource(place / "out"))
        trial = place / "out" / "crash" / "ext4-0"
        states = [StateRecord.model_validate_json(line) for line in (trial / "states.jsonl").read_text().splitlines()]
        planned = json.loads((trial / "planned.json").read_text())
        kept = sorted(path.name for path in (trial / "raw").iterdir())
    nested = [state for state in states if state.interrupts is not None]
    # a superblock that is torn when it is mounted keeps ext4 from being mounted again
    assert all(state.verdict == "held" or state.reason.startswith(UNMOUNTABLE) for state in states)
    assert (record.states, record.nested) == (len(states), len(nested))
    assert len(states) - len(nested) == 2
    assert len({state.interrupts for state in nested}) == 1
    assert all(state.id.startswith(f"{state.interrupts}.") for state in nested)
    assert len(nested) >= 5
    assert any(0 < state.kept < state.volatile for state in nested)
    assert sum(step["name"].startswith("record the recovery of state ") for step in planned["steps"]) == 1
    failed = any(state.verdict != "held" for state in nested)
    assert any(name.startswith("recovery-") for name in kept) == failed
