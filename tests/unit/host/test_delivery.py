"""strata-disk on the way to a host: sent once, looked for under its digest, and why it cannot be had."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from fake_host import FakeHost, completed
from pgstrata.errors import PreflightError
from pgstrata.host import delivery
from pgstrata.host.delivery import PROGRAM, deliver, environment, lacking
from pgstrata.host.protocol import Command, Completed

DIGEST = "1310ca2c8932dbd1"
"""Of `program`: sha256."""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A program of this machine."""
    program = tmp_path / "bin" / PROGRAM
    program.parent.mkdir()
    program.write_text("program")
    monkeypatch.setattr(delivery, "OWN", program)
    delivery._digest.cache_clear()
    yield program
    delivery._digest.cache_clear()


class Far(FakeHost):
    """A host over ssh; `runs`: whether the program does."""

    def __init__(self, *, runs: bool = True, machine: str = platform.machine()) -> None:
        super().__init__(answer=self._of, name="ssh://far")
        self.runs = runs
        self.machine = machine

    def _of(self, asked: Command) -> Completed | None:
        if asked.argv[0] == "mv":
            source, target = asked.argv[1:]
            self.files[target], self.modes[target] = self.files.pop(source), self.modes.pop(source)
            return completed(asked.argv)
        if asked.argv[0] == "uname":
            return completed(asked.argv, f"{self.machine}\n")
        if asked.argv[1:] == ("--version",):
            return completed(asked.argv, exit_code=0 if self.runs else 127, stderr="no such library")
        return None


def test_it_is_sent_once_and_found_first(own: Path) -> None:
    host = Far()
    deliver(host)
    folder = dict(environment())["PATH"].split(":")[0]
    assert folder == f"{delivery.SENT_FOLDER}/{DIGEST}"
    assert {path: host.modes[path] for path in host.files} == {f"{folder}/{PROGRAM}": 0o700}
    host.asked.clear()
    deliver(host)
    assert host.asked == []


def test_one_that_does_not_run_over_there_is_refused_and_not_left(own: Path) -> None:
    host = Far(runs=False)
    with pytest.raises(PreflightError, match="does not run on ssh://far: no such library"):
        deliver(host)
    assert host.files == {}


def test_nothing_is_sent_to_the_machine_it_lies_on(own: Path) -> None:
    host = FakeHost(name="local")
    deliver(host)
    assert host.files == {}


def test_a_host_with_another_processor_lacks_it(own: Path) -> None:
    assert lacking(Far()) is None
    assert (
        lacking(Far(machine="riscv64")) == f"strata-disk of this machine is for {platform.machine()}, not for riscv64"
    )


def test_without_a_program_here_that_of_the_host_counts(own: Path) -> None:
    own.unlink()
    host = Far()
    assert lacking(host) == "strata-disk is not installed"
    host.make_directory("/usr/local/bin")
    host.write_text(f"/usr/local/bin/{PROGRAM}", "theirs")
    assert lacking(host) is None
    deliver(host)
    assert list(host.files) == [f"/usr/local/bin/{PROGRAM}"]
    assert dict(environment())["PATH"].startswith("/usr/local/sbin:")
