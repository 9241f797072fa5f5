"""Work over processes of this machine: the same results as in one, also where one of them is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from acceptance_table.running import run_jobs

from awaiting import wait_until
from pgstrata.fleet.work import opened_work
from pgstrata.trial.scheduler import Inline
from pieces import killed_once, process_id

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]


BEGINS = """\
from pgstrata.fleet.work import opened_work
from pieces import held

if __name__ == "__main__":
    with opened_work(2) as executor:
        executor.submit(held, {folder!r}).result()
"""


def test_a_process_that_is_killed_costs_no_piece_and_none_comes_twice(tmp_path: Path) -> None:
    with opened_work(2) as executor:
        pieces = [executor.submit(killed_once, str(tmp_path), number) for number in range(6)]
        assert [piece.result(timeout=200) for piece in pieces] == [0, 2, 4, 6, 8, 10]
    assert {path.name.partition(".")[0] for path in tmp_path.iterdir()} == {"first", *"012345"}


def test_the_processes_end_with_the_work() -> None:
    with opened_work(2) as executor:
        number = executor.submit(process_id).result(timeout=200)
        assert Path(f"/proc/{number}").exists()
    assert not Path(f"/proc/{number}").exists()


def test_the_processes_end_with_the_one_that_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "begin.py"
    program.write_text(BEGINS.format(folder=str(tmp_path)))
    tests = str(Path(__file__).parents[1])
    parent = subprocess.Popen([sys.executable, str(program)], env={**os.environ, "PYTHONPATH": tests})
    wait_until(lambda: bool(list(tmp_path.glob("held.*"))), "a process has its piece")
    child = next(tmp_path.glob("held.*")).suffix.removeprefix(".")
    parent.kill()
    parent.wait()
    wait_until(lambda: not Path(f"/proc/{child}").exists(), "the process is gone")
    assert not list(tmp_path.glob("ended.*"))


def test_simulations_are_the_same_in_processes(tmp_path: Path) -> None:
    """A mutant, too, is what it is in this process."""
    names, mutant = ["A/A 4 typical"], "3.0"
    with opened_work(2) as executor:
        there = run_jobs(names, 10, executor, mutant=mutant)
    assert there == run_jobs(names, 10, Inline(), mutant=mutant) != run_jobs(names, 10, Inline())


def records(folder: Path) -> dict[str, bytes]:
    """Every file but those with the time of the import, or the process."""
    files = (path for path in folder.rglob("*") if path.is_file())
    named = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
    timed = ("campaign.json", "verdict.json", ".lock")
    return {name: content for name, content in named.items() if not name.endswith(timed)}


def write_logs(folder: Path) -> list[str]:
    """Logs of three runs, two of them of two threads."""
    sources = []
    for run, (stack, threads) in enumerate((("ext4", 2), ("xfs", 2), ("xfs", 1))):
        for thread in range(threads):
            log = folder / (f"pgbench_log.{run + 10}" + (f".{thread}" if thread else ""))
            rows = range(2000)
            log.write_text("".join(f"{thread} {i} {900 + run * i % 777} 0 {1700000000 + i // 150} 7\n" for i in rows))
            sources.append(f"{stack}={log}")
    return sources


def test_an_import_by_processes_is_the_same_byte_for_byte(tmp_path: Path) -> None:
    sources = write_logs(tmp_path)
    for workers in ("1", "3"):
        words = ["import", "pgbench", *sources, "--out", str(tmp_path / f"out{workers}"), "--workers", workers]
        done = subprocess.run(
            [sys.executable, "-m", "pgstrata.cli.main", *words], capture_output=True, text=True, timeout=200
        )
        assert done.returncode == 0, done.stderr
    one, three = (records(tmp_path / f"out{workers}") for workers in ("1", "3"))
    assert len(one) > 10
    assert one == three
