"""What a campaign is measured on, in words."""

from __future__ import annotations

from typing import Any

import pytest

from fake_host import FakeHost
from pgstrata.spec.campaign import Campaign
from pgstrata.trial.steps.facts import describe_medium


def disks(count: int) -> dict[str, Any]:
    return {"device": {"kind": "disk", "ids": [f"/dev/disk/by-id/d{i}" for i in range(1, count + 1)]}}


EXT4 = {"fs": {"kind": "ext4"}}
TMPFS = {"fs": {"kind": "tmpfs"}}
EXPORT = {"fs": {"kind": "nfs", "server": "nas:/db"}}


@pytest.mark.parametrize(
    ("volumes", "shown"),
    [
        ({"data": TMPFS}, "memory"),
        ({"data": EXT4 | disks(1), "wal": TMPFS}, "/dev/disk/by-id/d1"),
        (
            {"data": TMPFS, "tablespaces": {"arm": {"fs": {"kind": "btrfs"}} | disks(2)}},
            "/dev/disk/by-id/d1, /dev/disk/by-id/d2",
        ),
        ({"data": EXPORT, "wal": EXT4 | disks(1)}, "NFS export nas:/db; /dev/disk/by-id/d1"),
        (
            {"data": {"fs": {"kind": "zfs"}} | disks(25)},
            "/dev/disk/by-id/d1 ... /dev/disk/by-id/d25 (25 devices)",
        ),
    ],
)
def test_every_volume_counts(volumes: dict[str, Any], shown: str) -> None:
    campaign = Campaign.model_validate({"name": "x", "stacks": [{"name": "a", **volumes}]})
    assert describe_medium(FakeHost(), campaign, "/var/tmp", {}) == shown
