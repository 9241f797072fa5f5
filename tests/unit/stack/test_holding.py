"""Settings that several trials hold: one original, the last one restores, different values are refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from pgstrata.errors import PreflightError
from pgstrata.host.local import LocalHost
from pgstrata.stack.build import StepRunner
from pgstrata.stack.journal import Journal, clean
from pgstrata.stack.step import Setting, Step
from pgstrata.stack.tuning.setting import group_of, refuse_held


class Runs:
    """Several runs of pgstrata on one host, each a host object of its own, and a setting that is a file."""

    def __init__(self, folder: Path) -> None:
        self.state, self.file = folder / "state", folder / "extfrag_threshold"
        self.file.write_text("500\n")
        self.hosts: dict[str, LocalHost] = {}
        self.journals: dict[str, Journal] = {}

    def begin(self, trial: str, value: str, file: Path | None = None) -> None:
        host = self.hosts.setdefault(trial, LocalHost(state_directory=str(self.state)))
        journal = self.journals.setdefault(trial, Journal.create(host, trial))
        step = Step("settings", (), settings=(Setting(str(file or self.file), value),))
        StepRunner(host, journal).run(step)

    def end(self, trial: str) -> list[str]:
        undone = self.journals.pop(trial).undo_all()
        assert not [u.error for u in undone if u.error]
        return [u.line for u in undone]

    @property
    def value(self) -> str:
        return self.file.read_text().strip()

    @property
    def left(self) -> list[str]:
        return sorted(path.name for path in self.state.rglob("*") if path.is_file())


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    found = Runs(tmp_path)
    yield found
    for host in found.hosts.values():
        host.close()


@pytest.mark.parametrize("order", permutations(["a", "b", "c"]), ids="".join)
def test_the_last_one_restores_in_whatever_order_they_end(runs: Runs, order: tuple[str, ...]) -> None:
    for trial in ("a", "b", "c"):
        runs.begin(trial, "100")
    *early, last = order
    for trial in early:
        (line,) = runs.end(trial)
        assert "needs it" in line
        assert runs.value == "100"
    assert runs.end(last) == [f"set {runs.file} back to 500"]
    assert runs.value == "500"
    assert runs.left == []


def test_two_values_at_once_are_refused_with_who_holds_it(runs: Runs) -> None:
    runs.begin("a", "100")
    with pytest.raises(PreflightError, match=r"cannot be set to 200 .* trial a, which runs there, holds .* at 100"):
        runs.begin("b", "200")
    with pytest.raises(PreflightError, match="trial a"):
        refuse_held(runs.hosts["b"], [(str(runs.file), "200")])
    refuse_held(runs.hosts["b"], [(str(runs.file), " 100\n")])
    assert runs.value == "100"
    assert runs.end("b") == [""]
    assert runs.value == "100"
    runs.end("a")
    assert runs.value == "500"
    runs.begin("b", "200")
    runs.end("b")
    assert (runs.value, runs.left) == ("500", [])


KILLED = """
import os, signal, sys
from pathlib import Path
from pgstrata.host.local import LocalHost
from pgstrata.stack.build import StepRunner
from pgstrata.stack.journal import Journal
from pgstrata.stack.step import Setting, Step
host = LocalHost(state_directory=sys.argv[1])
step = Step("settings", (), settings=(Setting(sys.argv[2], "100"),))
StepRunner(host, Journal.create(host, "killed")).run(step)
os.kill(os.getpid(), signal.SIGKILL)
"""


def _kill_one(runs: Runs) -> None:
    argv = [sys.executable, "-c", KILLED, str(runs.state), str(runs.file)]
    assert subprocess.run(argv, timeout=120, env=os.environ).returncode == -signal.SIGKILL
    assert runs.value == "100"


def test_after_kill_9_clean_restores(runs: Runs) -> None:
    _kill_one(runs)
    host = runs.hosts["cleaner"] = LocalHost(state_directory=str(runs.state))
    assert clean(host).lines == (f"killed: set {runs.file} back to 500",)
    assert (runs.value, runs.left) == ("500", [])


@pytest.mark.parametrize("value", ["100", "200"])
@pytest.mark.parametrize("cleaned_first", [True, False], ids=["cleaned before the end", "cleaned after the end"])
def test_a_dead_trial_binds_nobody_and_its_original_is_kept(runs: Runs, value: str, cleaned_first: bool) -> None:
    _kill_one(runs)
    cleaner = runs.hosts["cleaner"] = LocalHost(state_directory=str(runs.state))
    runs.begin("b", value)
    if cleaned_first:
        assert "needs it" in "".join(clean(cleaner).lines)
        assert runs.value == value
    runs.end("b")
    assert runs.value == "500"
    clean(cleaner)
    assert (runs.value, runs.left) == ("500", [])


def test_a_line_that_was_cut_short_spoils_no_other(runs: Runs) -> None:
    runs.begin("a", "100")
    with (runs.state / "settings.jsonl").open("a") as file:
        file.write('{"boot": "')
    runs.begin("b", "100")
    runs.end("a")
    runs.end("b")
    assert (runs.value, runs.left) == ("500", [])


def test_what_was_held_before_a_reboot_is_void(runs: Runs) -> None:
    runs.begin("a", "100")
    file = runs.state / "settings.jsonl"
    held = file.read_text().replace(Path("/proc/sys/kernel/random/boot_id").read_text().strip(), "an-earlier-boot")
    file.write_text(held)
    runs.file.write_text("600\n")
    runs.begin("b", "200")
    runs.end("b")
    assert runs.value == "600"


def test_settings_that_change_one_another_are_one() -> None:
    assert group_of("/proc/sys/vm/dirty_ratio") == group_of("/proc/sys/vm/dirty_bytes")
    assert group_of("/proc/sys/vm/dirty_ratio") != group_of("/proc/sys/vm/dirty_background_ratio")
    disk = "/sys/class/block/sda/queue/nr_requests"
    assert group_of(disk) == group_of("/sys/devices/pci0/block/sda/queue/nr_requests")
    assert group_of(disk) != group_of("/sys/class/block/sda/queue/scheduler")


def test_the_present_value_is_read_as_the_kernel_shows_it(runs: Runs) -> None:
    runs.file.write_text("always [madvise] never\n")
    runs.begin("a", "never")
    assert runs.end("a") == [f"set {runs.file} back to madvise"]
    assert runs.value == "madvise"
