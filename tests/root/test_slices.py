"""Slices on real filesystems: balanced turns, their sums, and a failure, a signal and a kill among standing stacks."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from campaigning import clean, environment, nothing_left, reachable, run_in_fork
from pgstrata.errors import ExitCode
from pgstrata.record.reader import CampaignData, read
from pgstrata.record.schema import CellResult, SliceResult
from pgstrata.trial.executor import KILL_HOOK

CAMPAIGN = """\
name: turns
stacks: {stacks}
workload: {{scale: 1, clients: 2, duration: 2, warmup: 0, rate: 100, script: {script}}}
runs: {{design: slices, slices: {{count: 2, length: 1s}}, blocks: {blocks}, fresh_blocks: 1}}
defaults:
  device: {{loop: 1, size: 2560M}}
  postgresql: {{initdb: [--no-sync], settings: {{max_wal_size: 64MB}}}}
"""
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with reachable(tmp_path) as folder:
        yield folder


def run(
    place: Path,
    *,
    stacks: str = "[ext4, xfs, tmpfs]",
    script: str = "tpcb-like",
    blocks: int = 1,
    around: AbstractContextManager[object] | None = None,
    kill_after: int | None = None,
) -> int:
    file = place / "turns.yaml"
    file.write_text(CAMPAIGN.format(stacks=stacks, script=script, blocks=blocks), encoding="utf-8")
    hook = {} if kill_after is None else {KILL_HOOK: str(kill_after)}
    argv = ["run", str(file), "--out", str(place / "out"), "--quiet"]
    return run_in_fork(argv, {**environment(place), **hook}, place / "log.txt", around)


def turns(data: CampaignData, block: int, cell: str) -> list[tuple[str, SliceResult]]:
    """Stack and slice of a block, in the order of the clock."""
    trials = [t for t in data.trials if t.trial.block == block]
    found = [(t.trial.stack, one) for t in trials for c in t.cells if c.id == cell for one in c.result.slices]
    return sorted(found, key=lambda turn: turn[1].began_epoch_s)


def test_the_load_goes_from_stack_to_stack_in_balanced_turns(place: Path) -> None:
    """Two cells; then a block with a golden copy and without whole runs."""
    assert run(place, script="[select-only, tpcb-like]", blocks=2) == 0, (place / "log.txt").read_text()
    data = read(place / "out")
    assert {t.verdict.status for t in data.trials} == {"ok"}
    assert [t.load.how for t in data.trials if t.load] == ["fresh"] * 3 + ["copy"] * 3
    for block in (0, 1):
        order = [t.trial.stack for t in data.trials if t.trial.block == block]
        for cell in ("select-only-s1-c2-r100", "tpcb-like-s1-c2-r100"):
            found = turns(data, block, cell)
            assert [stack for stack, _ in found] in (order + order[::-1], order[::-1] + order)
            ends = [one.began_epoch_s + one.measured_s for _, one in found]
            assert all(begun.began_epoch_s > end for end, (_, begun) in zip(ends, found[1:], strict=False)), (
                "one at a time"
            )
    for trial in data.trials:
        for cell_data in trial.cells:
            check_sums(cell_data.result)
            assert (cell_data.result.whole is not None) == cell_data.has("progress") == (trial.trial.block == 0)
    assert {s.setting for s in data.trials[0].settings if s.name == "autovacuum"} == {"off"}
    nothing_left(place)


def check_sums(result: CellResult) -> None:
    assert result.transactions == sum(one.transactions for one in result.slices) > 0
    seconds = sum(one.measured_s + one.sync_s for one in result.slices)
    assert result.tps == pytest.approx(result.transactions / seconds)
    if result.whole is not None:
        assert result.whole.slices == ()
        assert result.whole.transactions > 0


def test_a_stack_that_fails_is_taken_down_and_the_others_go_on(place: Path) -> None:
    """Its script divides by zero on the one stack whose setting says so."""
    script = place / "picky.sql"
    script.write_text("SELECT 1 / (current_setting('work_mem') <> '7MB')::int;\n", encoding="utf-8")
    stacks = "{ext4: , picky: {data: tmpfs, postgresql: {settings: {work_mem: 7MB}}}, tmpfs: }"
    assert run(place, stacks=stacks, script=str(script)) == ExitCode.TRIALS_FAILED
    data = read(place / "out")
    assert {t.trial.stack: t.verdict.status for t in data.trials} == {"ext4": "ok", "picky": "failed", "tmpfs": "ok"}
    assert all(len(t.cells[0].result.slices) == 2 for t in data.trials if t.valid)
    nothing_left(place)


def test_killed_among_standing_stacks(place: Path) -> None:
    """At steps of every stage: while the stacks are built, in the turns, and while they are taken down."""
    killed = 0
    for step in range(9, 150, 36):
        code = run(place, kill_after=step)
        if code == 0:
            break
        assert code == -signal.SIGKILL, (place / "log.txt").read_text()
        killed += 1
        assert clean(place) == 0
        nothing_left(place)
    assert killed >= 3
    statuses = [t.verdict.status for t in read(place / "out").trials]
    assert set(statuses) <= {"ok", "excluded"}
    assert len(statuses) == 3
    nothing_left(place)


@contextmanager
def ended_among_standing_stacks(place: Path) -> Iterator[None]:
    """This process gets SIGTERM as soon as the servers of all three stacks run."""

    def watch() -> None:
        while len(list(place.glob("state/mount/*/**/postmaster.pid"))) < 3:
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
    yield


def test_a_signal_takes_all_of_them_down_and_the_campaign_goes_on(place: Path) -> None:
    assert run(place, around=ended_among_standing_stacks(place)) == ExitCode.INTERRUPTED, (
        place / "log.txt"
    ).read_text()
    nothing_left(place)
    assert read(place / "out").trials == ()
    assert run(place) == 0
    assert [t.verdict.status for t in read(place / "out").trials] == ["ok"] * 3
    nothing_left(place)
