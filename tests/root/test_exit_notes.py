"""Notes of exit codes go with their trial, also when nobody came back to read them."""

from __future__ import annotations

from pathlib import Path

from pgstrata.host.agent.places import runtime_directory
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import Command


def notes(marker: str) -> list[str]:
    folder = Path(runtime_directory())
    return [p.name for p in folder.iterdir() if p.name.startswith(marker)] if folder.exists() else []


def test_notes_of_a_trial_are_removed_with_it(host: LocalHost, tmp_path: Path) -> None:
    marker = f"notes-{tmp_path.name}"
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
    marker = f"notes-{tmp_path.name}"
    env = (("PGSTRATA_TRIAL", marker),)
    quick = Command(("sh", "-c", "exit 3"), env=env)
    process = host.start(quick, stdout=str(tmp_path / "out"), stderr=str(tmp_path / "err"))
    host.stop_marked(marker)
    assert process.wait(10) == 3
    assert notes(marker) == []
