"""kill -9 at any moment: `clean` leaves nothing, and the same command ends the campaign."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from attacking import scaled
from campaigning import clean, environment, nothing_left, reachable, run, run_directories, write_campaign
from pgstrata.record.reader import read

CHUNKS = 10
KILLS = 100
BLOCKS = 3
LONGEST_S = 8.0
"""About how long the campaign takes at least: it is killed at any moment of it."""
KINDS = (("ext4",), ("xfs",), ("btrfs(raid1,2)",), ("tmpfs",), ("ext4", "tmpfs"))

pytestmark = [pytest.mark.root, pytest.mark.timeout(3600)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with reachable(tmp_path) as folder:
        yield folder


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_killed_at_any_moment(chunk: int, place: Path) -> None:
    stacks = KINDS[chunk % len(KINDS)]
    file = write_campaign(place, *stacks, blocks=BLOCKS, load="keep" if chunk < CHUNKS // 2 else "copy")
    rng = random.Random(chunk)
    left = scaled(KILLS // CHUNKS)
    while left:
        if killed_after(rng.uniform(0.3, LONGEST_S), file, place):
            left -= 1
        else:  # it had come to its end, after what earlier kills had let it finish
            shutil.rmtree(place / "out")
        assert clean(place) == 0, (place / "log.txt").read_text()
        nothing_left(place)
        assert not run_directories(file, place)
    assert run(file, place) == 0, (place / "log.txt").read_text()
    trials = read(place / "out").trials
    assert {t.verdict.status for t in trials} == {"ok"}
    assert len({t.id for t in trials}) == len(trials) == BLOCKS * len(stacks)
    nothing_left(place)


def killed_after(pause_s: float, file: Path, place: Path) -> bool:
    """Whether the campaign still ran when its time was up."""
    argv = [sys.executable, "-m", "pgstrata.cli.main", "run", str(file), "--out", str(place / "out"), "--quiet"]
    with (place / "log.txt").open("ab") as log:
        child = subprocess.Popen(argv, env={**os.environ, **environment(place)}, stdout=log, stderr=log)
    time.sleep(pause_s)
    still = child.poll() is None
    child.send_signal(signal.SIGKILL)
    code = child.wait(60)
    assert code in (0, -signal.SIGKILL), (place / "log.txt").read_text()
    return still
