"""Nodes of a real cluster are lost: what was acknowledged is where it should be, and mistakes are found out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from campaigning import environment, nothing_left, run_in_fork
from pgstrata.crash.cluster_program import disturbances
from pgstrata.record.reader import read

MEMORY = "cluster(3,ANY 1)/tmpfs"


def crash(place: Path, stack: str, *options: str, failures: int = 12) -> dict[str, Any]:
    """The durability that `pgstrata crash` finds, from its record."""
    argv = ["crash", stack, "--states", str(failures), "--scratch", str(place), "--out", str(place / "out"), "--quiet"]
    assert run_in_fork([*argv, *options], environment(place), place / "log.txt") == 0, (place / "log.txt").read_text()
    nothing_left(place)
    (one,) = read(place / "out").crashes
    found: dict[str, Any] = one.found.model_dump(mode="json")
    return found


def failures_of(place: Path) -> list[dict[str, Any]]:
    (file,) = (place / "out" / "crash").glob("*/failures.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def moments_of(place: Path) -> list[dict[str, Any]]:
    """But for the last line, which is of all of them."""
    (file,) = (place / "out" / "crash").glob("*/raw/moments.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()[:-1]]


def test_with_one_node_lost_the_most_advanced_one_has_everything(place: Path) -> None:
    found = crash(place, MEMORY)
    assert (found["verdict"], found["states"], found["unknown"]) == ("held", 12, 0)
    one, two, _ = found["cluster"]["by_lost"]
    assert (one["losing"], one["failed"], one["carried_out"]) == (0, 0, 12)
    assert two["losing"] > 0, "the primary and the only one who has a commit"
    holders = found["cluster"]["holders"]
    assert holders[:2] == [0, 0], "ANY 1: each commit is on the primary and on one more"
    assert sum(holders) > 0
    failures = failures_of(place)
    assert {failure["promoted"] for failure in failures} == {"primary", "standby1", "standby2"}
    amiss = {failure["moment"]: failure["disturbance"] for failure in failures}
    assert set(amiss.values()) == set(disturbances(("primary", "standby1", "standby2"), slow=True))
    reach = {moment["number"]: moment["positions"] for moment in moments_of(place)}
    gone = {at: what for at, what in amiss.items() if "standby" in what and not what.endswith("slow")}
    assert all(reach[at][what.split()[0]] < reach[at]["primary"] for at, what in gone.items())


@pytest.mark.parametrize("mistake", ["least", "forgetful"])
def test_promoting_the_wrong_one_is_found_out(mistake: str, place: Path) -> None:
    found = crash(place, MEMORY, "--promote", mistake)
    assert found["verdict"] == "lost"
    assert found["lost_acknowledged_max"] > 0
    assert found["unknown"] == 0, "the record says of each failure what is missing"


def test_primary_and_the_only_one_who_acknowledged_lost_together_is_found_out(place: Path) -> None:
    found = crash(place, MEMORY, "--lost", "2")
    assert found["verdict"] == "lost"
    assert found["unknown"] == 0
    assert found["cluster"]["by_lost"][1]["failed"] > 0


def test_what_a_standby_has_only_been_handed_goes_with_its_memory(place: Path) -> None:
    """remote_write: acknowledged when it was handed over. Both lose power, and all that is left is the archive."""
    found = crash(place, "cluster(2,ANY 1,remote_write)/tmpfs@archive=tmpfs", "--lost", "2", failures=3)
    assert found["verdict"] == "lost"
    assert found["unknown"] == 0


def test_the_archive_restores_what_it_holds(place: Path) -> None:
    found = crash(place, f"{MEMORY}@archive=ext4", "--lost", "3", failures=3)
    archive = found["cluster"]["archive"]
    assert archive["carried_out"] == 3
    assert found["unknown"] == 0, "what is restored is what the archive's last segment says"
    assert archive["missing_max"] == max(failure["missing"] for failure in failures_of(place))
    assert archive["missing_max_s"] is not None


@pytest.mark.parametrize("how", ["rewind", "backup"])
def test_the_old_primary_follows_the_promoted_node_and_says_what_it_gave_up(how: str, place: Path) -> None:
    """No commit waits for anybody, so the primary is ahead at some moments: what only it had is given up."""
    found = crash(place, "cluster(2)/tmpfs", "--rejoin", how, failures=5)
    rejoined, failures = found["cluster"]["rejoined"], failures_of(place)
    assert (found["unknown"], found["corrupt"]) == (0, 0), [failure["reason"] for failure in failures]
    tried = [failure for failure in failures if "rejoined" in failure]
    assert (rejoined["how"], rejoined["tried"], rejoined["failed"]) == (how, len(tried), 0)
    assert {failure["promoted"] for failure in tried} == {"standby1"}
    assert rejoined["discarded_max"] > 0
    assert all(f["rejoined"]["acknowledged"] == f["missing"] <= f["rejoined"]["discarded"] for f in tried)


def test_the_scratch_folder_may_be_closed_to_the_servers_user(place: Path) -> None:
    """As one that mktemp makes: nothing that this user runs lies in it."""
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    found = crash(place, MEMORY, "--scratch", str(closed), failures=3)
    assert (found["verdict"], found["states"], found["unknown"]) == ("held", 3, 0)
