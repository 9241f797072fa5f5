"""The baseline of real folders, and that nothing stays of it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigning import environment, nothing_left, reachable, run, run_in_fork, write_campaign
from pgstrata.host.local import LocalHost
from pgstrata.record.reader import read
from pgstrata.workload.medium import MediumBaseline, measure_flushes

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed: apt-get install fio"),
]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with reachable(tmp_path) as folder:
        yield folder


def test_a_folder_has_every_rate_and_is_left_as_it_was(place: Path) -> None:
    measured, output = place / "measured", place / "output"
    measured.mkdir()
    code = run_in_fork(["medium", str(measured), "--seconds", "0.1", "--json"], environment(place), output)
    assert code == 0, output.read_text()
    (found,) = json.loads(output.read_text())["media"]
    assert found["missing"] == []
    assert all(rate > 0 for name, rate in found.items() if name.endswith("_per_s"))
    assert list(measured.iterdir()) == []
    nothing_left(place)


def test_flushes_alone_are_measured_and_their_file_goes(place: Path) -> None:
    measured = place / "measured"
    measured.mkdir()
    found = measure_flushes(LocalHost(state_directory=str(place / "state")), str(measured), seconds=0.1)
    assert found.flushes_per_s
    assert found == MediumBaseline(flushes_per_s=found.flushes_per_s, flushes_by="fio")
    assert list(measured.iterdir()) == []


def test_a_campaign_records_it_before_its_first_block(place: Path) -> None:
    file = write_campaign(place, "ext4")
    file.write_text(file.read_text().replace("duration: 1,", "duration: 10,"))
    assert run(file, place) == 0, (place / "log.txt").read_text()
    (baseline,) = read(place / "out").media
    assert baseline.before_block == 0
    assert baseline.medium.startswith("loop file on ")
    assert baseline.flushes_per_s is not None
    assert "Baseline of the scratch folder" in (place / "log.txt").read_text()
    nothing_left(place)
