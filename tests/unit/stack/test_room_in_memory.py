"""Nodes in memory share it: what all of them hold together must fit."""

from __future__ import annotations

import pytest

from fake_host import FakeHost
from pgstrata.errors import PreflightError
from pgstrata.spec.layers.tmpfs import Tmpfs
from pgstrata.spec.notation.stack import parse_stack
from pgstrata.stack.fs.tmpfs import KIND
from pgstrata.stack.preflight import alike_bytes
from pgstrata.stack.sizing import Wanted

GIB = 1 << 30
MEMINFO = "MemTotal:       16777216 kB\nMemAvailable:   12582912 kB\n"


def test_volumes_of_one_kind_are_added_up() -> None:
    stack = parse_stack("cluster(3)/tmpfs@wal=tmpfs@standby2=ext4@archive=tmpfs")
    roles = dict.fromkeys(stack.volumes, 10)
    assert alike_bytes(stack, stack.data, roles) == 10 * sum(v.fs.kind == "tmpfs" for v in stack.volumes.values())
    assert alike_bytes(stack, stack.volumes["standby2.data"], roles) == 10


def test_three_nodes_that_fit_one_by_one_do_not_fit_together() -> None:
    host = FakeHost(files={"/proc/meminfo": MEMINFO})
    KIND.require_room(host, Tmpfs(), Wanted("a", 5 * GIB))
    with pytest.raises(PreflightError, match=r"about 15\.0 GiB and .* are needed"):
        KIND.require_room(host, Tmpfs(), Wanted("a", 5 * GIB, alike_bytes=15 * GIB))
