"""Foreign members and taken names: refused, and what is somebody else's stays."""

from __future__ import annotations

import pytest
from bench import context, slow_resync, stack_of
from remains import data_disks

from pgstrata.errors import PgstrataError, PreflightError
from pgstrata.host.protocol import Host, command
from pgstrata.stack.build import build
from pgstrata.stack.journal import Journal
from pgstrata.stack.plan import plan_stack

_PV = (["pvcreate", "--yes", "DISK"], [["pvremove", "--yes", "DISK"]])
_MD = (
    ["mdadm", "--create", "/dev/md/theirs", "--run", "--level=1", "--raid-devices=2", "DISK", "missing"],
    [["mdadm", "--stop", "/dev/md/theirs"], ["mdadm", "--zero-superblock", "DISK"]],
)
_POOL = (
    ["zpool", "create", "-f", "-o", "cachefile=none", "theirs", "DISK"],
    [["zpool", "destroy", "theirs"], ["wipefs", "--all", "DISK-part1"], ["wipefs", "--all", "DISK"]],
)


@pytest.mark.parametrize("kind", ["pv", "md", "pool"])
def test_foreign_members(host: Host, kind: str) -> None:
    make, unmake = {"pv": _PV, "md": _MD, "pool": _POOL}[kind]
    disk = data_disks(host)[0]
    host.run(command("modprobe", "zfs"))
    host.run(command([word.replace("DISK", disk) for word in make], timeout_s=120))
    try:
        stack = stack_of(
            {"device": {"kind": "disk", "ids": [disk]}, "layers": [{"kind": "lvm"}], "fs": {"kind": "xfs"}}
        )
        with pytest.raises(PreflightError, match=r"in use|carries"):
            build(host, plan_stack(stack, context()), Journal.create(host, "t1"))
    finally:
        for argv in unmake:
            host.run(command([word.replace("DISK", disk) for word in argv], timeout_s=120))


def test_a_group_name_that_is_taken(host: Host) -> None:
    disk = data_disks(host)[0]
    host.run(command("vgcreate", "--yes", "pgstrata-t1-data", disk))
    try:
        stack = stack_of({"layers": [{"kind": "lvm"}], "fs": {"kind": "xfs"}})
        with pytest.raises(PgstrataError, match="is there already"):
            build(host, plan_stack(stack, context()), Journal.create(host, "t1"))
        assert host.run(command("vgs", "pgstrata-t1-data")).exit_code == 0
    finally:
        host.run(command("vgremove", "--yes", "pgstrata-t1-data"))
        host.run(command("pvremove", "--yes", disk))


def test_a_module_parameter_that_this_version_does_not_have(host: Host) -> None:
    stack = stack_of({"fs": {"kind": "zfs", "module": {"zfs_no_such_thing": 1}}})
    with pytest.raises(PgstrataError, match="zfs_no_such_thing"):
        build(host, plan_stack(stack, context()), Journal.create(host, "t1"))


def test_an_array_that_is_not_in_sync_in_time(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgstrata.stack.block.md.RESYNC_TIMEOUT_S", 5.0)
    layer = {"kind": "md", "level": "raid1"}
    stack = stack_of({"device": {"kind": "loop", "count": 2}, "layers": [layer], "fs": {"kind": "xfs"}})
    with slow_resync(host, 1000), pytest.raises(PgstrataError, match="did not end within"):
        build(host, plan_stack(stack, context()), Journal.create(host, "t1"))
