"""pgstrata killed while it builds a layer: `clean` leaves nothing, on the machine and here."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from bench import context, stack_of
from remains import data_disks, remains

from awaiting import wait_until
from built import TESTS_IMPORTABLE
from pgstrata.host.protocol import Host
from pgstrata.lab.machine import Machine
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.stack.journal import clean
from pgstrata.stack.plan import plan_stack

MOMENTS: dict[str, tuple[str, dict[str, object]]] = {
    "lvm, group": ("volume group", {"layers": [{"kind": "lvm"}], "fs": {"kind": "xfs"}}),
    "lvm, snapshot": ("snapshot 1", {"layers": [{"kind": "lvm", "snapshots": 1}], "fs": {"kind": "xfs"}}),
    "lvm, cache": (
        "cache of",
        {"layers": [{"kind": "lvm", "cache": {"kind": "loop"}, "cache_mode": "writeback"}], "fs": {"kind": "xfs"}},
    ),
    "lvm, writecache": (
        "mount xfs",
        {"layers": [{"kind": "lvm", "writecache": {"kind": "loop"}}], "fs": {"kind": "xfs"}},
    ),
    "luks, key": ("key of", {"layers": [{"kind": "luks"}], "fs": {"kind": "btrfs"}}),
    "luks, mapping": ("mapping", {"layers": [{"kind": "luks"}, {"kind": "lvm"}], "fs": {"kind": "ext4"}}),
    "zvol": ("zvol", {"layers": [{"kind": "zvol", "encryption": "on"}], "fs": {"kind": "ext4"}}),
    "md, resyncing": ("array", {"layers": [{"kind": "md", "level": "raid1"}], "fs": {"kind": "ext4"}}),
    "zfs, pool": ("zfs pool", {"fs": {"kind": "zfs", "vdev": "mirror", "module": {"zfs_txg_timeout": 3}}}),
    "zfs, mounted": ("zfs dataset", {"fs": {"kind": "zfs", "vdev": "mirror"}}),
}


def _build_and_die(host: Host, machine: Machine, volume: Mapping[str, object], step: str) -> None:
    program = str(Path(__file__).with_name("build_and_die.py"))
    argv = [sys.executable, program, machine.name, json.dumps(volume), step]
    ended = subprocess.run(argv, timeout=600, capture_output=True, text=True, env=TESTS_IMPORTABLE)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    # the machine learns that the connection has ended a moment later
    lock = f"trial-{context().trial_id}"
    wait_until(lambda: host.lock_holder(lock) is None, "the machine has noticed that whoever built is gone")


@pytest.mark.parametrize("moment", MOMENTS)
def test_on_real_disks(host: Host, machine: Machine, moment: str) -> None:
    step, volume = MOMENTS[moment]
    _build_and_die(host, machine, {"device": {"kind": "disk", "ids": data_disks(host)[:2]}, **volume}, step)
    cleaned = clean(host)
    assert cleaned.lines != ()
    assert not cleaned.failed, cleaned.lines
    assert clean(host).lines == ()


EVERY_STEP = [
    "luks/lvm:cache_mode=writeback+cache/ext4",
    pytest.param("lvm+writecache/xfs", marks=pytest.mark.every_layer),
    pytest.param("zvol:encryption=on+log/ext4", marks=pytest.mark.every_layer),
]


@pytest.mark.every_stack
@pytest.mark.parametrize("text", EVERY_STEP)
def test_after_every_step(host: Host, machine: Machine, text: str) -> None:
    volume = parse_stack(text).data
    for step in plan_stack(stack_of(volume.model_dump()), context()).steps:
        _build_and_die(host, machine, volume.model_dump(mode="json"), step.name)
        cleaned = clean(host)
        assert not cleaned.failed, (step.name, cleaned.lines)
        assert remains(host) == [], step.name


def test_nfs_exported(host: Host, machine: Machine) -> None:
    _build_and_die(host, machine, {"fs": {"kind": "nfs", "export": {"kind": "ext4"}}}, "mount nfs")
    cleaned = clean(host)
    assert not cleaned.failed, cleaned.lines
    assert any("stopped nfs-server" in line for line in cleaned.lines)
