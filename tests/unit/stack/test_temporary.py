"""Temporary folders of crash replay and minimise."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from pgstrata.host.local import LocalHost
from pgstrata.stack.journal import clean, temporary_folder

KILLED = """
import os, signal
from pgstrata.stack.journal import temporary_folder
with temporary_folder("replay") as folder:
    (folder / "events.log.gz").write_bytes(b"packed")
    print(folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable, name in (("PGSTRATA_STATE_DIRECTORY", "state"), ("TMPDIR", "tmp")):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / name))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def journals(places: Path) -> list[str]:
    return [path.name for path in (places / "state" / "journal").iterdir()]


def test_clean_removes_the_folder_of_a_program_that_was_killed(places: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, check=False)
    folder = Path(killed.stdout.strip())
    assert (killed.returncode, folder.parent) == (-signal.SIGKILL, places / "tmp"), killed.stderr
    assert folder.name.startswith("pgstrata-replay-")
    assert (folder / "events.log.gz").exists()
    with closing(LocalHost()) as host:
        cleaned = clean(host)
    assert [line.split(": ", 1)[1] for line in cleaned.lines] == [f"removed {folder}"]
    assert not cleaned.failed
    assert not folder.exists()
    assert journals(places) == []


def test_clean_leaves_the_folder_of_a_program_that_runs(places: Path) -> None:
    with temporary_folder("minimise") as folder:
        code = "from pgstrata.host.local import LocalHost; from pgstrata.stack.journal import clean; clean(LocalHost())"
        subprocess.run([sys.executable, "-c", code], check=True)
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()
    assert journals(places) == []


def test_the_folder_goes_with_an_error(places: Path) -> None:
    with pytest.raises(ValueError, match="damaged"), temporary_folder("log"):
        raise ValueError("damaged")
    assert list((places / "tmp").iterdir()) == []
    assert journals(places) == []
