"""kill -9 of every command that makes something, at any moment: `clean` leaves nothing, memory and TMPDIR included."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from attacking import scaled
from campaigning import clean, environment, reachable, remains, write_campaign
from segments import segments_left

DISK = Path(sys.executable).parent / "strata-disk"
KILLS = 25
"""Of each command."""
NOTICED_WITHIN_S = 15.0

pytestmark = [
    pytest.mark.root,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not DISK.exists(), reason="strata-disk is not built: cargo is missing"),
]

CRASH = ("--transactions", "20", "--minimise", "0", "--nested", "2", "--workers", "2")
LOSES = "ext4@synchronous_commit=off"


@dataclass(frozen=True)
class Killed:
    """A command that works in a folder, and about how long it takes; one that ends sooner is killed sooner."""

    argv: Callable[[Path], list[str]]
    longest_s: float
    prepared: Callable[[Path], None] = lambda _: None


def campaign(*stacks: str, watched: bool = False) -> Callable[[Path], list[str]]:
    def argv(place: Path) -> list[str]:
        file = write_campaign(place, *stacks, blocks=2)
        return ["run", str(file), "--out", str(place / "out"), *(("--watch",) if watched else ())]

    return argv


def crash(stack: str, *words: str) -> Callable[[Path], list[str]]:
    return lambda place: ["crash", stack, *words, "--scratch", str(place), "--out", str(place / "out")]


def of_state(verb: str, *words: str) -> Callable[[Path], list[str]]:
    def argv(place: Path) -> list[str]:
        (states,) = (place / "lost").glob("crash/*/states.jsonl")
        looked_at = [json.loads(line) for line in states.read_text().splitlines()]
        failed = next(state["id"] for state in looked_at if state["verdict"] == "lost")
        return ["crash", verb, f"{states.parent}/{failed}", "--scratch", str(place), *words]

    return argv


def lose(place: Path) -> None:
    """A crash trial with states that fail."""
    words = ["crash", LOSES, *CRASH, "--states", "60", "--scratch", str(place), "--out", str(place / "lost"), "--quiet"]
    subprocess.run(command(words), env=surroundings(place), check=True, capture_output=True, timeout=600)


COMMANDS: Mapping[str, Killed] = {
    "run --watch": Killed(campaign("ext4", "tmpfs", watched=True), 10.0),
    "run of a cluster": Killed(campaign("cluster(2,ANY 1)/tmpfs"), 12.0),
    "crash": Killed(crash("ext4", *CRASH, "--states", "200"), 12.0),
    "crash of a cluster": Killed(crash("cluster(2,ANY 1)/tmpfs", "--states", "4"), 15.0),
    "crash on a Dask cluster": Killed(crash("ext4", *CRASH[:-2], "--states", "200", "--on", "dask:local"), 15.0),
    "crash replay": Killed(of_state("replay"), 3.0, lose),
    "crash minimise": Killed(of_state("minimise", "--states", "500"), 8.0, lose),
}


def command(words: list[str]) -> list[str]:
    return [sys.executable, "-m", "pgstrata.cli.main", *words]


def surroundings(place: Path) -> dict[str, str]:
    temporary = place / "temporary"
    temporary.mkdir(exist_ok=True, mode=0o700)
    return {**os.environ, **environment(place), "TMPDIR": str(temporary)}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with reachable(tmp_path) as folder:
        yield folder


@pytest.mark.parametrize("name", COMMANDS)
def test_killed_at_any_moment(name: str, place: Path) -> None:
    killed = COMMANDS[name]
    killed.prepared(place)
    rng = random.Random(name)
    since = time.time()
    left, longest_s = scaled(KILLS), killed.longest_s
    for _ in range(6 * left):
        lasted_s = killed_after(rng.uniform(0.3, longest_s), killed.argv(place), place)
        if lasted_s is None:
            left -= 1
        else:
            longest_s = min(longest_s, lasted_s)
            shutil.rmtree(place / "out", ignore_errors=True)
        assert clean(place) == 0, (place / "log.txt").read_text()
        assert left_in(place) == []
        assert list((place / "temporary").iterdir()) == []
        assert segments_left(since) == []
        if not left:
            return
    pytest.fail(f"the command ended before it was killed: {left} kills are left")


def left_in(place: Path) -> list[str]:
    """What is still there once the processes of a killed command have noticed that it is dead."""
    deadline = time.monotonic() + NOTICED_WITHIN_S
    while (found := remains(place)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def killed_after(pause_s: float, words: list[str], place: Path) -> float | None:
    """None if the command still ran when its time was up; else the seconds until its end, which is no failure."""
    began_s = time.monotonic()
    with (place / "log.txt").open("ab") as log:
        child = subprocess.Popen(command(words), env=surroundings(place), stdout=log, stderr=log)
    try:
        code = child.wait(pause_s)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGKILL)
        child.wait(60)
        return None
    assert code == 0, (place / "log.txt").read_text()
    return time.monotonic() - began_s
