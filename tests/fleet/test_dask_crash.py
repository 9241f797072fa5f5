"""States that workers of a Dask cluster look at: as in one process, also where a worker is killed meanwhile."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path

import pytest

from awaiting import wait_until
from campaigning import environment, nothing_left, reachable
from crashed import read_crashes
from pgstrata.crash.job import parse_seen, shares
from pgstrata.crash.remote_workers import MachineAsked, StatesAsked, look_at_states
from pgstrata.fleet.work import opened_cluster_work, opened_work
from pgstrata.record.crash import StateRecord
from pgstrata.record.source import FolderSource
from pgstrata.trial.scheduler import Inline
from pieces import process_id
from recorded_log import DISK, STAGE, job_of, record, run, states_of

pytest.importorskip("distributed", reason="needs Dask: make setup")

pytestmark = [
    pytest.mark.root,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not DISK.exists(), reason="strata-disk is not built: cargo is missing"),
]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with reachable(tmp_path) as folder:
        for name, value in environment(folder).items():
            monkeypatch.setenv(name, value)
        yield folder


class Recorded:
    """A log, and states of it for workers whose mount points are on no machine."""

    def __init__(self, place: Path) -> None:
        mounted = place / "recorded-there"
        mounted.mkdir()
        self.place = place
        self.log = record(place, mounted)
        self.states = states_of(self.log, 8)
        self.packed = gzip.compress(self.log.read_bytes())
        self.root = place / "state" / "mount"

    def asked(self, states: Sequence[str], first: str) -> str:
        point = self.root / "pgstrata-trial" / "data"
        mount = {**STAGE, "up": [["mount", "<data.0>", str(point)]], "mount_point": str(point)}
        machine = MachineAsked(
            program=run(DISK, "--version").strip(),
            postgres="/bin/cat",
            version=run("/bin/cat", "--version").strip(),
            user="root",
            needs=("root",),
            mount_root=str(self.root),
        )
        job = job_of(Path(), point, states, [mount], first)
        return StatesAsked(machine=machine, job=job, mount_points=(str(point),)).model_dump_json()

    def submit(self, executor: Executor, workers: int, first: str = "") -> dict[str, str]:
        """The files of each state, by its digest."""
        portions = shares(self.states, workers)
        futures = [executor.submit(look_at_states, self.asked(part, first), self.packed) for part in portions]
        return self.files(portions, [future.result(timeout=200) for future in futures])

    def files(self, portions: Sequence[Sequence[str]], answers: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for portion, text in zip(portions, answers, strict=True):
            told = json.loads(text)
            assert (told["code"], told["stderr"], told["left"]) == (0, "", [])
            for state, seen in zip(portion, parse_seen(told["stdout"]), strict=True):
                assert (seen.problem, seen.mounted, seen.server) == ("", 0, 0)
                found[json.loads(state)["digest"]] = seen.stdout
        return found


def test_one_process_several_and_workers_of_which_one_is_killed_see_the_same(place: Path) -> None:
    recorded = Recorded(place)
    one = recorded.submit(Inline(), 1)
    assert len(one) == 8
    with opened_work(2) as processes:
        assert recorded.submit(processes, 2) == one

    go = place / "go"
    waits = f"until test -e {go}; do sleep 0.05; done;"
    with opened_cluster_work("dask:{local: 2}") as work:
        first = next(iter(work.backend.ask_each(process_id).values()))
        portions = shares(recorded.states, 2)
        futures = [work.submit(look_at_states, recorded.asked(part, waits), recorded.packed) for part in portions]
        wait_until(
            lambda: len(list(place.glob("state/pgstrata-states-*/job.json"))) == 2, "both workers look at states"
        )
        os.kill(int(first), signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{first}").exists(), "one is gone")
        go.touch()
        assert recorded.files(portions, [future.result(timeout=200) for future in futures]) == one
    for left in ("journal/*", "locks/*", "mount/*", "pgstrata-states-*"):
        assert list(place.glob(f"state/{left}")) == []


def test_workers_of_one_machine_take_turns_where_it_can_have_one_state_up(place: Path) -> None:
    recorded, go = Recorded(place), place / "go"
    one = recorded.submit(Inline(), 1)
    waits = f"until test -e {go}; do sleep 0.05; done;"
    portions = shares(recorded.states, 2)
    asked = [{**json.loads(recorded.asked(part, waits)), "alone": True} for part in portions]
    with opened_work(2) as processes:
        futures = [processes.submit(look_at_states, json.dumps(each), recorded.packed) for each in asked]
        wait_until(
            lambda: len(list(place.glob("state/pgstrata-states-*/job.json"))) == 1, "one of them looks at states"
        )
        assert len(list(place.glob("state/journal/states-*"))) == 1, "the other has begun nothing"
        go.touch()
        assert recorded.files(portions, [future.result(timeout=200) for future in futures]) == one


def test_power_cuts_with_workers_of_a_cluster(place: Path) -> None:
    """What holds holds, what loses loses, and the record has each state once."""
    stacks = ["ext4", "ext4@fsync=off", "btrfs(raid1)"]
    words = ["crash", *stacks, "--transactions", "10", "--states", "6", "--minimise", "0"]
    places = ["--out", str(place / "out"), "--scratch", str(place / "scratch"), "--on", "dask:{local: 2}"]
    done = subprocess.run(
        [sys.executable, "-m", "pgstrata.cli.main", *words, *places], capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    nothing_left(place)
    assert not list(place.glob("state/pgstrata-states-*"))
    found = {one.stack: one for one in read_crashes(FolderSource(place / "out"))}
    assert [(found[name].verdict, found[name].states) for name in ("ext4", "btrfs(raid1)")] == [("held", 6)] * 2
    assert found["ext4@fsync=off"].verdict in ("lost", "corrupt")
    trial = place / "out" / "crash" / "ext4-0"
    states = [StateRecord.model_validate_json(line) for line in (trial / "states.jsonl").read_text().splitlines()]
    assert len({state.id for state in states}) == len(states) == 6
    steps = {step["name"]: step for step in json.loads((trial / "planned.json").read_text())["steps"]}
    assert "by 2 workers" in steps["states 1.0 to 1.5"]["tells"]
    assert "condense the event log for the workers" in steps
