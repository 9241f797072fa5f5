"""Notes of exit codes go with their trial, also when nobody came back to read them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from pgstrata.host.agent.places import runtime_directory
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Command
from pgstrata.stack.journal import clean


def notes(marker: str) -> list[str]:
    folder = Path(runtime_directory())
    return [p.name for p in folder.iterdir() if p.name.startswith(marker)] if folder.exists() else []


def test_notes_of_a_trial_are_removed_with_it(host: LocalHost, tmp_path: Path) -> None:
    marker = f"notes-{os.getpid()}-{tmp_path.name}"
    env = (("PGSTRATA_TRIAL", marker),)
    for name, seconds in (("short", "0"), ("long", "600")):
        host.start(
            Command(("sleep", seconds), env=env), stdout=str(tmp_path / name), stderr=str(tmp_path / f"{name}.err")
        )
    assert len(notes(marker)) == 2
    other = LocalHost(state_directory=str(tmp_path / "state"))  # as after kill -9 of the first
    assert len(other.stop_marked(marker)) >= 1
    assert notes(marker) == []
    other.close()


def test_who_started_a_program_still_learns_how_it_ended(host: LocalHost, tmp_path: Path) -> None:
    marker = f"notes-{os.getpid()}-{tmp_path.name}"
    env = (("PGSTRATA_TRIAL", marker),)
    quick = Command(("sh", "-c", "exit 3"), env=env)
    process = host.start(quick, stdout=str(tmp_path / "out"), stderr=str(tmp_path / "err"))
    host.stop_marked(marker)
    assert notes(marker) == [], "a trial that failed asks no more"
    assert process.wait(10) == 3


STARTS_AND_DIES = """
import os, signal, sys
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Command
place, marker = sys.argv[1:]
host = LocalHost(state_directory=f"{place}/state")
for name, argv in (("ended", ("true",)), ("running", ("cat", f"{place}/pipe"))):
    env = (("PGSTRATA_TRIAL", f"{marker}-{name}"),)
    host.start(Command(argv, env=env), stdout=f"{place}/{name}", stderr=f"{place}/{name}.err")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_notes_that_nobody_can_ask_for_are_removed_once_their_programs_have_ended(
    host: LocalHost, tmp_path: Path
) -> None:
    marker = f"notes-{os.getpid()}-{tmp_path.name}"
    os.mkfifo(tmp_path / "pipe")
    ours = host.start(
        Command(("true",), env=(("PGSTRATA_TRIAL", f"{marker}-ours"),)), stdout=f"{tmp_path}/o", stderr=f"{tmp_path}/e"
    )
    subprocess.run([sys.executable, "-c", STARTS_AND_DIES, str(tmp_path), marker], timeout=60, check=False)
    _until_written(f"{marker}-ended")
    clean(host)
    assert notes(f"{marker}-ended") == []
    assert len(notes(f"{marker}-running")) == 1
    assert len(notes(f"{marker}-ours")) == 1, "who started it lives"
    (tmp_path / "pipe").write_text("")
    _until_written(f"{marker}-running")
    clean(host)
    assert notes(f"{marker}-running") == []
    assert ours.wait(10) == 0
    assert notes(marker) == []


def _until_written(marker: str) -> None:
    """Until the keeper of that program has written its exit code and ended, which gives up its hold."""
    deadline = time.monotonic() + 60
    while True:
        names = [name for name in notes(marker) if name.endswith(".exit")]
        with (Path(runtime_directory()) / names[0]).open() as note:
            if note.read():
                return
        assert time.monotonic() < deadline
        time.sleep(0.02)
