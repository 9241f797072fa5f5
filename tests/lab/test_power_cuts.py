"""Power cuts of stacks whose layers only the lab has: md below LVM below ext4, also with pg_wal on an export."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from remains import SCRATCH

from pgstrata.crash.runner import crash_trials, open_crash_runner
from pgstrata.host.protocol import Host
from pgstrata.lab.machine import Machine
from pgstrata.record.crash import StateRecord
from pgstrata.record.recorder import CampaignDirectory
from pgstrata.spec.crash import crash_campaign, named_stacks
from pgstrata.spec.crash_request import CrashRequest
from pgstrata.stack.journal import clean
from pgstrata.stack.mounts import list_mounts
from pgstrata.trial.events import silent
from pgstrata.trial.interruption import Interruption


def cut(host: Host, stack: str, states: int, transactions: int, out: Path) -> tuple[str, list[StateRecord]]:
    """A trial of that stack: its name, and the states of its record."""
    campaign = crash_campaign(named_stacks([stack])).model_copy(update={"scratch": SCRATCH})
    request = CrashRequest(states=states, nested=0, minimise=0, transactions=transactions)
    with CampaignDirectory.create_or_open(out, campaign, "crash") as directory:
        runner = open_crash_runner(host, campaign, directory, request, silent, Interruption())
        (verdict,) = (runner.run(trial, directory, silent) for trial in crash_trials(campaign))
        assert (verdict.status, verdict.reason) == ("ok", "")
        (crash,) = directory.data().crashes
    lines = (out / "crash" / crash.id / "states.jsonl").read_text().splitlines()
    return crash.id, [StateRecord.model_validate_json(line) for line in lines]


@pytest.mark.parametrize(
    "stack",
    [
        "md(raid1,2)/lvm/ext4@wal=nfs",
        pytest.param("lvm:cache_mode=writeback+cache/ext4", marks=pytest.mark.every_layer),
        "lvm(striped,2)+writecache/ext4",
        pytest.param("luks/ext4", marks=pytest.mark.every_layer),
        "luks:discards/ext4:discard",
        pytest.param("zvol:sync=always/ext4", marks=pytest.mark.every_layer),
        "zvol+log/ext4@wal=zfs:encryption=on",
    ],
)
def test_states_of_layers_are_brought_up_and_taken_down(host: Host, tmp_path: Path, stack: str) -> None:
    _, states = cut(host, stack, 3, 6, tmp_path / "out")
    assert [(state.verdict, state.reason) for state in states] == [("held", "")] * 3


def test_a_state_of_layers_that_failed_is_made_again(host: Host, machine: Machine, tmp_path: Path) -> None:
    trial, states = cut(host, "md(raid1,2)/lvm/ext4@fsync=off", 6, 25, tmp_path / "out")
    failed = next(state for state in states if state.verdict == "lost")
    name, where = f"{tmp_path}/out/crash/{trial}/{failed.id}", f"lab/{machine.name}"
    call = [sys.executable, "-m", "pgstrata.cli.main", "crash", "replay", name, "--scratch", SCRATCH, "--host", where]
    ended = subprocess.run(call, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    (mount,) = (m for m in list_mounts(host) if m.source.startswith("/dev/mapper/pgstrata"))
    assert mount.fstype == "ext4"
    assert f"{name} is mounted at {mount.target} on {where}\n" in ended.stdout
    assert ended.stdout.endswith(f"take it away: pgstrata clean --host {where}\n")
    recover = next(line for line in ended.stdout.splitlines() if line.startswith("recover it: "))
    assert host.status(recover.split("-D ")[-1].split()[0] + "/global/pg_control") is not None
    assert not clean(host).failed
