"""SIGINT at every line of a trial: whatever it had made is gone when the process ends, without `clean`."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import pgstrata
from attacking import scaled
from campaigning import clean, reachable, remains, run, run_directories, write_campaign

PACKAGE = Path(pgstrata.__file__).parent
TRACED = (
    *("trial/", "stack/build.py", "stack/journal.py", "stack/safety.py", "probe/start.py"),
    *("postgres/server.py", "postgres/golden.py", "postgres/database.py", "host/protocol.py"),
)
CHUNKS = 12
FEWEST_LINES = 500
INTERRUPTED = 130

pytestmark = [pytest.mark.root, pytest.mark.timeout(3600)]


class Tracer:
    """Runs what is inside with `reached` called at the first visit of each line of the traced files."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, int]] = set()
        self._traced: dict[str, bool] = {}

    def __enter__(self) -> None:
        sys.settrace(self._call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        self.ended()

    def reached(self, line: tuple[str, int]) -> None:
        """A line was reached for the first time."""

    def ended(self) -> None:
        """The program is at its end."""

    def _wants(self, file: str) -> bool:
        if file not in self._traced:
            inside = file.startswith(f"{PACKAGE}/")
            self._traced[file] = inside and file.removeprefix(f"{PACKAGE}/").startswith(TRACED)
        return self._traced[file]

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if self._wants(frame.f_code.co_filename) else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        line = (frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and line not in self.seen:
            self.seen.add(line)
            self.reached(line)
        return self._line


class Survey(Tracer):
    """Writes down which lines there are."""

    def __init__(self, found: Path) -> None:
        super().__init__()
        self._found = found

    def ended(self) -> None:
        self._found.write_text(json.dumps(sorted(self.seen)))


class Signaller(Tracer):
    """Sends SIGINT at the first visit of one line."""

    def __init__(self, at: tuple[str, int], sent: Path) -> None:
        super().__init__()
        self._at = at
        self._sent = sent

    def reached(self, line: tuple[str, int]) -> None:
        if line == self._at:
            self._sent.touch()
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with reachable(tmp_path) as folder:
        yield folder


def lines_of_a_trial(file: Path, place: Path) -> list[tuple[str, int]]:
    """Every line that the campaign visits when nothing interrupts it."""
    found = place / "lines.json"
    assert run(file, place, around=Survey(found)) == 0, (place / "log.txt").read_text()
    shutil.rmtree(place / "out")
    return [(name, number) for name, number in json.loads(found.read_text())]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_interrupted_at_every_line(chunk: int, place: Path) -> None:
    file = write_campaign(place, "tmpfs" if chunk % 2 else "ext4", load="keep" if chunk % 2 else "copy")
    lines = lines_of_a_trial(file, place)
    assert len(lines) > FEWEST_LINES
    assert all((PACKAGE / traced).exists() for traced in TRACED)
    share = lines[chunk::CHUNKS]
    chosen = random.Random(chunk).sample(share, scaled(len(share)))
    lost = {}
    for number, line in enumerate(chosen):
        sent = place / f"sent.{number}"
        code = run(file, place, around=Signaller(line, sent))
        # 0: it came when there was nothing left to interrupt. A line that was not visited this time proves nothing
        assert code in ((INTERRUPTED, 0) if sent.exists() else (0,)), (line, code, (place / "log.txt").read_text())
        left = [*run_directories(file, place), *remains(place)]
        if left:
            lost[str(line)] = left
            clean(place)
        shutil.rmtree(place / "out", ignore_errors=True)
    assert lost == {}
    assert len(list(place.glob("sent.*"))) >= 0.8 * len(chosen), "the signals were sent"
