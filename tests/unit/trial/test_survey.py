"""Looking a host over, and over again when it was lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import awaiting
from pgstrata.errors import PreflightError
from pgstrata.host.local import LocalHost
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.layers.devices import DiskDevice
from pgstrata.spec.layers.not_built import Existing
from pgstrata.spec.layers.zfs import Zfs
from pgstrata.spec.stack import Stack, Volume
from pgstrata.stack.journal import Journal, clean
from pgstrata.trial.events import silent
from pgstrata.trial.interruption import Interruption
from pgstrata.trial.opening import performance_runner, refuse_leftovers
from pgstrata.trial.runner import PerformanceRunner
from pgstrata.trial.survey.survey import survey

pytestmark = pytest.mark.slow


def test_golden_copies_made_after_the_host_was_lost_are_removed_too(tmp_path: Path) -> None:
    stack = Stack(name="here", data=Volume(fs=Existing(path=str(tmp_path))))
    host = LocalHost(state_directory=str(tmp_path / "state"))
    site = survey(host, Campaign(name="x", stacks=(stack,)), tmp_path / "out")
    runner = PerformanceRunner(site, Interruption())
    runner.clean_after_loss(silent)
    golden = Path(site.golden_directory)
    assert golden.stat().st_mode & 0o777 == 0o700
    assert runner.close() == ()
    assert not golden.exists()
    assert clean(host).lines == ()


def test_what_could_not_be_undone_is_no_failed_trial_but_a_refusal(tmp_path: Path) -> None:
    stack = Stack(name="here", data=Volume(fs=Existing(path=str(tmp_path))))
    host = LocalHost(state_directory=str(tmp_path / "state"))
    site = survey(host, Campaign(name="x", stacks=(stack,)), tmp_path / "out")
    refuse_leftovers(site)
    journal = Journal.create(host, "b000-00-of-others")
    refuse_leftovers(site)
    own = Journal.create(host, site.context_named("b000-00-here").trial_id)
    with pytest.raises(PreflightError, match="could not be undone"):
        refuse_leftovers(site)
    assert (*own.undo_all(), *journal.undo_all()) == ()


def test_scratch_and_mounts_are_named_without_links(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    campaign = Campaign(
        name="x",
        stacks=(Stack(name="here", data=Volume(fs=Existing(path=str(tmp_path)))),),
        scratch=str(tmp_path / "link" / "loops"),
    )
    host = LocalHost(state_directory=str(tmp_path / "link" / "state"))
    site = survey(host, campaign, tmp_path / "out")
    assert site.scratch == str(real / "loops")
    assert site.mount_root in (None, str(real / "state" / "mount"))


def test_a_pools_log_device_is_kept_from_a_second_run(tmp_path: Path) -> None:
    data, log = str(tmp_path / "data.img"), str(tmp_path / "log.img")
    fs = Zfs(log=DiskDevice(ids=(log,)))
    asked = Campaign(name="x", stacks=(Stack(name="z", data=Volume(fs=fs, device=DiskDevice(ids=(data,)))),))
    first, second = (LocalHost(state_directory=str(tmp_path / "state")) for _ in range(2))
    assert first.try_lock(f"device-{log}", "another run") is None
    with CampaignDirectory.create_or_open(tmp_path / "out", asked) as directory:
        opened = performance_runner(second, asked, directory, silent, Interruption())
        with pytest.raises(PreflightError, match=r"log.img .* another pgstrata"), opened:
            pass
    first.close()
    second.close()


def test_a_golden_directory_that_somebody_else_has_made_is_refused(tmp_path: Path) -> None:
    stack = Stack(name="here", data=Volume(fs=Existing(path=str(tmp_path))))
    host = LocalHost(state_directory=str(tmp_path / "state"))
    site = survey(host, Campaign(name="x", stacks=(stack,)), tmp_path / "out")
    golden = Path(site.golden_directory)
    golden.mkdir(parents=True)
    with pytest.raises(PreflightError, match="is there already"):
        PerformanceRunner(site, Interruption())
    assert golden.exists()
    assert clean(host).lines == ()


KILLED_IN_A_COMMAND = """
import os, signal, sys, threading
from pathlib import Path
from awaiting import wait_for_number
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import command
from pgstrata.spec.campaign import Campaign
from pgstrata.spec.layers.not_built import Existing
from pgstrata.spec.stack import Stack, Volume
from pgstrata.stack.journal import Journal
from pgstrata.stack.undo import StopProcesses
from pgstrata.trial.survey.survey import survey

place = sys.argv[1]
stack = Stack(name="here", data=Volume(fs=Existing(path=place)))
host = LocalHost(state_directory=f"{place}/state")
site = survey(host, Campaign(name="x", stacks=(stack,)), Path(place) / "out")
context = site.context_named("b000-00-here")
host.mark(context.marker)
Journal.create(host, context.trial_id).register(StopProcesses(marker=context.marker))

def kill_when_it_runs():
    wait_for_number(Path(place) / "pid")
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=kill_when_it_runs).start()
host.run(command("sh", "-c", f"trap 'kill $!' INT; sleep 600 & echo $$ >{place}/pid; wait"))
"""


def test_a_command_that_outlives_a_killed_pgstrata_is_ended(tmp_path: Path) -> None:
    """As mkfs or cp would, which take minutes on large devices, and write on after everything was `cleaned`."""
    env = {**os.environ, "PYTHONPATH": str(Path(awaiting.__file__).parent)}
    ended = subprocess.run([sys.executable, "-c", KILLED_IN_A_COMMAND, str(tmp_path)], timeout=120, env=env)
    assert ended.returncode == -signal.SIGKILL
    pid = int((tmp_path / "pid").read_text())
    assert awaiting.is_running(pid)
    cleaned = clean(LocalHost(state_directory=str(tmp_path / "state")))
    assert not cleaned.failed
    assert "ended 2 processes" in cleaned.lines[0]
    assert not awaiting.is_running(pid)
