"""A campaign on a Dask cluster over TLS, of which everything is killed once: the same command finishes it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from awaiting import wait_until
from campaigning import environment, reachable, servers_of
from pgstrata.analyze.campaign.judge import judge
from pgstrata.record.reader import read

pytest.importorskip("distributed", reason="needs Dask: make setup")

from dask_processes import DaskProcesses, dask_processes

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]

CAMPAIGN = """\
name: killed
hosts: {{dask: {{address: "{address}", tls: tls}}}}
scratch: {place}/scratch
stacks: [ext4, tmpfs]
workload: {{scale: 1, clients: 2, duration: 2, warmup: 0}}
runs: {{blocks: {blocks}, fresh_blocks: 1}}
defaults:
  device: {{loop: 1, size: 2560M}}
  postgresql: {{initdb: [--no-sync], settings: {{fsync: "off", max_wal_size: 64MB}}}}
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with reachable(tmp_path) as folder:
        yield folder


def write(place: Path, cluster: DaskProcesses, blocks: int) -> Path:
    file = place / "killed.yaml"
    file.write_text(CAMPAIGN.format(address=cluster.address, place=place, blocks=blocks))
    return file


def begin(file: Path, place: Path) -> subprocess.Popen[bytes]:
    with (place / "log.txt").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "pgstrata.cli.main", "run", str(file), "--out", str(place / "out")],
            env={**os.environ, **environment(place)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def finished(place: Path) -> int:
    return len(list((place / "out" / "trials").glob("[!.]*")))


def in_the_middle(coordinator: subprocess.Popen[bytes], place: Path, after: int) -> None:
    """Until so many trials have come back, and another one is being measured over there."""

    def holds() -> bool:
        assert coordinator.poll() is None, log_of(place)
        events = list(place.glob("state/pgstrata-fleet-*/trials/.*.partial/events.jsonl"))
        return finished(place) >= after and any(is_measuring(path) for path in events)

    wait_until(holds, "a trial is in the middle")


def is_measuring(events: Path) -> bool:
    try:
        lines = events.read_text().splitlines()
    except FileNotFoundError:
        return False
    return any("measure" in json.loads(line).get("step", "") for line in lines if line.endswith("}"))


def busy_worker(place: Path) -> int:
    """The process that runs the trial: it has the machine to itself."""
    found = re.match(r"process (\d+) with", (place / "state" / "locks" / "fleet").read_text())
    assert found is not None
    return int(found[1])


def log_of(place: Path) -> str:
    return "\n".join((place / name).read_text(errors="replace")[-6000:] for name in ("log.txt", "dask.log"))


def nothing_of_it(place: Path) -> list[str]:
    state = [str(path) for name in ("journal", "mount", "locks") for path in (place / "state" / name).glob("*")]
    folders = [str(path) for path in (place / "state").glob("pgstrata-fleet-*")]
    return [*state, *folders, *(str(path) for path in place.glob("scratch/*"))]


def test_worker_scheduler_and_coordinator_are_killed(place: Path) -> None:
    with dask_processes(place, environment(place), workers=3) as cluster:
        file = write(place, cluster, blocks=3)

        first = begin(file, place)
        in_the_middle(first, place, after=1)
        os.kill(busy_worker(place), signal.SIGKILL)
        in_the_middle(first, place, after=2)
        first.kill()
        first.wait()
        before = {path.name for path in (place / "out" / "trials").glob("[!.]*")}

        second = begin(file, place)
        in_the_middle(second, place, after=len(before) + 1)
        assert cluster.scheduler is not None
        cluster.kill(cluster.scheduler)
        cluster.start_scheduler()
        cluster.start_workers(3)
        assert second.wait(timeout=300) == 0, log_of(place)

        data = read(place / "out")
        assert [t.verdict.status for t in data.trials] == ["ok"] * 6, log_of(place)
        assert Counter((t.trial.stack, t.trial.block) for t in data.trials) == {
            (stack, block): 1 for stack in ("ext4", "tmpfs") for block in range(3)
        }
        assert before <= {t.id for t in data.trials}
        assert len({t.trial.host for t in data.trials}) == 1
        assert judge(data).hosts[0].rows
        said = (place / "log.txt").read_text()
        assert "its worker was lost; what it ran begins anew there" in said
        assert "3 workers: one trial at a time" in said
        assert nothing_of_it(place) == []
    wait_until(lambda: servers_of(place) == [], "no process of it is left")
