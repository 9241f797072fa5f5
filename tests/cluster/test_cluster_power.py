"""All nodes of a real cluster lose power at once: what their disks kept is there, what was never flushed is not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from campaigning import clean, environment, nothing_left, run, run_in_fork, write_campaign
from pgstrata.crash.ledger import LedgerSize
from pgstrata.record.crash import StateRecord
from pgstrata.record.reader import read

pytestmark = pytest.mark.skipif(
    not (Path(sys.executable).parent / "strata-disk").exists(), reason="strata-disk is not built: cargo is missing"
)

SESSIONS = LedgerSize().sessions


def power(place: Path, stack: str, *options: str, states: int = 6) -> dict[str, Any]:
    """The durability that `pgstrata crash --power` finds, from its record."""
    argv = ["crash", stack, "--power", "--states", str(states), "--transactions", "10", "--minimise", "0", "--quiet"]
    argv += ["--scratch", str(place), "--out", str(place / "out")]
    assert run_in_fork([*argv, *options], environment(place), place / "log.txt") == 0, (place / "log.txt").read_text()
    nothing_left(place)
    (one,) = read(place / "out").crashes
    found: dict[str, Any] = one.found.model_dump(mode="json")
    assert found["unknown"] == 0
    return found


def test_nodes_on_disks_come_back_with_all_that_was_acknowledged(place: Path) -> None:
    found = power(place, "cluster(3,ANY 1)/ext4")
    assert (found["verdict"], found["states"]) == ("held", 6)
    assert found["power"]["went_on"] == {"primary": 6}


def test_without_its_primary_the_standbys_have_it(place: Path) -> None:
    """Commits waited until a standby had flushed them, and the one that reaches furthest is promoted."""
    found = power(place, "cluster(3,ANY 1)/ext4", "--gone", "primary")
    assert (found["verdict"], found["states"]) == ("held", 6)
    assert found["power"]["gone"] == ["primary"]
    assert set(found["power"]["went_on"]) <= {"standby1", "standby2"}


@pytest.mark.parametrize(("level", "verdicts"), [("on", {"held"}), ("remote_write", {"lost", "corrupt"})])
def test_what_a_standby_was_only_handed_is_not_on_its_disk(level: str, verdicts: set[str], place: Path) -> None:
    """The primary is in memory, and the only one who acknowledged loses power too. Its disk turns, so that a flush
    takes its time: what was written meanwhile is acknowledged with remote_write, and not there."""
    found = power(place, f"cluster(2,ANY 1,{level})/tmpfs@standby=media(hdd-7200)/ext4", states=12)
    assert found["verdict"] in verdicts
    assert found["power"]["in_memory"] == ["primary"]
    assert found["power"]["went_on"] == {"standby1": 12}


def test_a_state_that_lost_is_mounted_again_and_has_what_the_trial_saw(place: Path) -> None:
    power(place, "cluster(2,ANY 1,remote_write)/tmpfs@standby=media(hdd-7200)/ext4", states=12)
    (trial,) = (place / "out" / "crash").iterdir()
    states = [StateRecord.model_validate_json(line) for line in (trial / "states.jsonl").read_text().splitlines()]
    lost = next(state for state in states if state.verdict == "lost")
    argv, printed = ["crash", "replay", f"{trial}/{lost.id}", "--scratch", str(place)], place / "replayed.json"
    assert run_in_fork([*argv, "--json"], environment(place), printed) == 0, printed.read_text()
    found = json.loads(printed.read_text())
    primary, standby = found["nodes"]
    assert (primary["name"], primary["fate"], primary["mount_points"]) == ("primary", "nothing is left", [])
    assert (standby["name"], standby["fate"], standby["went_on"]) == ("standby1", "came back", True)
    assert found["mounts"] == standby["mount_points"]
    assert (Path(standby["data_directory"]) / "standby.signal").is_file()
    question = "SELECT count(*) AS entries FROM ledger.entry\n"
    done = subprocess.run(
        ["bash", "-c", found["recover"]], input=question, capture_output=True, text=True, check=True, timeout=300
    )
    (entries,) = re.findall(r'entries = "(\d+)"', done.stdout)
    kept = lost.acknowledged - lost.lost
    assert kept <= int(entries) <= kept + SESSIONS, "each session may have had one more, which nobody had acknowledged"
    assert clean(place) == 0
    nothing_left(place)
    assert run_in_fork([*argv, "--export", str(place / "state.dm")], environment(place), printed) == 0
    assert (place / "state.dm").stat().st_size > 0
    nothing_left(place)


def test_of_a_cluster_in_memory_the_archive_is_left(place: Path) -> None:
    found = power(place, "cluster(2,ANY 1)/tmpfs@archive=ext4", states=4)
    assert found["verdict"] in ("lost", "corrupt"), "the WAL since the last segment, and segments that cp did not flush"
    # the archive is written seldom: there may be fewer states than were asked for that differ
    assert 1 <= found["states"] <= 4
    assert found["power"]["went_on"] == {"archive": found["states"]}
    (file,) = (place / "out" / "crash").glob("*/states.jsonl")
    assert {json.loads(line)["promoted"] for line in file.read_text().splitlines()} == {"archive"}


@pytest.mark.parametrize(
    ("asked", "stack"),
    [
        ("{states: 4, time: 5min, power: true, gone: [primary]}", "cluster(2,ANY 1)/ext4"),
        ("{states: 2, time: 20s, rejoin: rewind}", "cluster(2,ANY 1)/tmpfs"),
    ],
)
def test_a_campaign_asks_for_what_the_command_has_options_for(asked: str, stack: str, place: Path) -> None:
    file = write_campaign(place, stack)
    text = file.read_text().replace('fsync: "off"', 'fsync: "on"')  # which small campaigns do without
    assert 'fsync: "on"' in text
    file.write_text(f"{text}crash: {asked}\n")
    assert run(file, place) == 0, (place / "log.txt").read_text()
    nothing_left(place)
    (one,) = read(place / "out").crashes
    assert one.found.verdict == "held"
    if one.found.power is not None:
        assert (one.found.states, one.found.power.gone) == (4, ("primary",))
        assert set(one.found.power.went_on) == {"standby1"}
    else:
        assert one.found.cluster is not None
        assert one.found.cluster.rejoined is not None
        assert (one.found.cluster.rejoined.how, one.found.cluster.rejoined.failed) == ("rewind", 0)
    assert (one.found.power is None) == ("rejoin" in asked)
