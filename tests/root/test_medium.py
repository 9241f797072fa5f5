"""The baseline of real folders, and that nothing stays of it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from campaigning import STATE, run_in_fork, write_campaign
from pgstrata.record.reader import read

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed: apt-get install fio"),
]


def test_a_folder_has_every_rate_and_is_left_as_it_was(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    out = tmp_path / "out"
    code = run_in_fork(["medium", str(place), "--seconds", "0.1", "--json"], {STATE: str(tmp_path / "state")}, out)
    assert code == 0, out.read_text()
    (found,) = json.loads(out.read_text())["media"]
    assert found["missing"] == []
    assert all(rate > 0 for name, rate in found.items() if name.endswith("_per_s"))
    assert list(place.iterdir()) == []
    assert list((tmp_path / "state" / "journal").iterdir()) == []


def test_a_campaign_records_it_before_its_first_block(tmp_path: Path) -> None:
    file = write_campaign(tmp_path, "ext4")
    file.write_text(file.read_text().replace("duration: 1,", "duration: 10,"))
    output = tmp_path / "output"
    code = run_in_fork(
        ["run", str(file), "--out", str(tmp_path / "out"), "--quiet"], {STATE: str(tmp_path / "state")}, output
    )
    assert code == 0, output.read_text()
    (baseline,) = read(tmp_path / "out").media
    assert baseline.before_block == 0
    assert baseline.medium.startswith("loop file on ")
    assert baseline.flushes_per_s is not None
    assert "Baseline of the medium" in output.read_text()
