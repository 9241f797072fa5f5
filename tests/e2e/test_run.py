"""The whole program on real filesystems: plan, run, resume, status, report, clean."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leavings import lost_loops
from pgstrata.record.reader import read

CAMPAIGN = """\
name: whole
defaults:
  device: {loop: 1, size: 2560M}
  postgresql: {initdb: [--no-sync], settings: {fsync: "off", max_wal_size: 64MB}}
stacks: [ext4, "xfs:noatime", btrfs, tmpfs, zfs, "ext4@max_connections=3"]
workload: {scale: 1, clients: 2, duration: 2, warmup: 1, rate: 100}
runs: {blocks: 2, fresh_blocks: 1}
"""

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder that the server's user can reach, with a campaign file in it."""
    folder = Path("/var/tmp") / f"pgstrata-e2e-{os.getpid()}"
    folder.mkdir(mode=0o755)
    (folder / "whole.yaml").write_text(CAMPAIGN)
    yield folder
    subprocess.run(["rm", "--recursive", "--force", str(folder)], check=True, timeout=60)


def pgstrata(place: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PGSTRATA_")}
    return subprocess.run(
        [sys.executable, "-m", "pgstrata.cli.main", *argv],
        cwd=place,
        env={**environment, "PGSTRATA_STATE_DIRECTORY": str(place / "state")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture(scope="module")
def finished(place: Path) -> subprocess.CompletedProcess[str]:
    return pgstrata(place, "run", "whole.yaml", "--out", "out")


def test_plan_touches_nothing(place: Path) -> None:
    before = sorted(p.name for p in place.iterdir())
    done = pgstrata(place, "plan", "whole.yaml", "--out", "planned", "--json")
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in place.iterdir()) == before
    value = json.loads(done.stdout)
    assert len(value["trials"]) == 12
    commands = [c for t in value["trials"] for s in t["steps"] for c in s["commands"]]
    for start in ("mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "mount --types tmpfs", "losetup", "zpool create"):
        assert any(c.startswith(start) for c in commands), start
    assert value["at_most"]["written_bytes"] > 0
    assert any("drop" in line for line in value["host_wide"])


def test_what_was_planned_is_what_was_done(place: Path, finished: subprocess.CompletedProcess[str]) -> None:
    for trial in read(place / "out").trials:
        if trial.valid:
            planned = {step.name for step in trial.planned.steps}
            done = {step.name for step in trial.steps}
            assert planned <= done | {"undo"}, planned - done


def test_run_ends_with_verdicts(place: Path, finished: subprocess.CompletedProcess[str]) -> None:
    assert finished.returncode == 0, finished.stderr
    assert "loop file on" in finished.stdout
    assert finished.stdout.rstrip().endswith("report: out/report.html")
    data = read(place / "out")
    ran = {t.trial.stack for t in data.trials if t.valid}
    assert ran >= {"ext4", "xfs:noatime", "btrfs", "tmpfs"}
    assert [t.load.how for t in data.trials if t.valid and t.load and t.trial.stack == "ext4"] == ["fresh", "copy"]


def test_a_stack_that_cannot_be_built_is_unsupported(place: Path, finished: subprocess.CompletedProcess[str]) -> None:
    if os.path.exists("/sys/module/zfs"):
        pytest.skip("this kernel has zfs")
    (trial,) = [t for t in read(place / "out").trials if t.trial.stack == "zfs"]
    assert trial.verdict.status == "unsupported"
    assert "zfs" in trial.verdict.reason
    report = json.loads(pgstrata(place, "report", "out", "--format", "json").stdout)
    (stack,) = [s for s in report["stacks"] if s["name"] == "zfs"]
    assert "zfs" in stack["unsupported"]


def test_a_stack_whose_server_cannot_be_as_asked_is_unsupported(
    place: Path, finished: subprocess.CompletedProcess[str]
) -> None:
    (trial,) = [t for t in read(place / "out").trials if t.trial.stack == "ext4@max_connections=3"]
    assert trial.verdict.status == "unsupported"
    assert "max_connections" in trial.verdict.reason
    assert "ext4@max_connections=3 cannot be built here: " in finished.stderr


def test_the_same_command_again_runs_nothing(place: Path, finished: subprocess.CompletedProcess[str]) -> None:
    before = {t.id: t.verdict.ended for t in read(place / "out").trials}
    again = pgstrata(place, "run", "whole.yaml", "--out", "out")
    assert again.returncode == 0, again.stderr
    assert {t.id: t.verdict.ended for t in read(place / "out").trials} == before


def test_nothing_is_left(place: Path, finished: subprocess.CompletedProcess[str]) -> None:
    with lost_loops():
        assert pgstrata(place, "clean").stdout == "nothing to clean\n"
    assert not (place / "out" / "scratch").exists()
    assert str(place) not in Path("/proc/self/mountinfo").read_text()
    assert str(place) not in subprocess.run(["losetup", "--list"], capture_output=True, text=True, check=True).stdout


def test_refusals(place: Path, finished: subprocess.CompletedProcess[str]) -> None:
    huge = CAMPAIGN.replace("scale: 1,", "scale: 100000,").replace("name: whole", "name: huge")
    huge = huge.replace("btrfs, tmpfs, zfs", "btrfs").replace(", size: 2560M", "")
    (place / "huge.yaml").write_text(huge)
    done = pgstrata(place, "run", "huge.yaml", "--out", "huge")
    assert done.returncode == 3
    assert "too little" in done.stderr
    assert "HINT: " in done.stderr
    (place / "setting.yaml").write_text(CAMPAIGN.replace("max_wal_size", "max_wall_size"))
    done = pgstrata(place, "run", "setting.yaml", "--out", "setting")
    assert done.returncode == 2
    assert "did you mean max_wal_size?" in done.stderr
    assert not (place / "setting").exists()
    (place / "value.yaml").write_text(CAMPAIGN.replace("max_wal_size: 64MB", "max_wal_size: 64parsecs"))
    done = pgstrata(place, "run", "value.yaml", "--out", "value")
    assert done.returncode == 3
    assert "64parsecs" in done.stderr
    assert "HINT: " in done.stderr
    assert not (place / "value" / "scratch").exists()
