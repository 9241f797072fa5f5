"""Where preconditioning writes: on filesystems of our own alone."""

from __future__ import annotations

import pytest

from pgstrata.spec.layers.ext4 import Ext4
from pgstrata.spec.layers.kind import Filesystem
from pgstrata.spec.layers.nfs import Nfs
from pgstrata.spec.layers.not_built import Existing
from pgstrata.spec.layers.tmpfs import Tmpfs
from pgstrata.spec.stack import Stack, Volume
from pgstrata.stack.plan import PlanContext, plan_stack
from pgstrata.trial.steps.precondition import own_places

CONTEXT = PlanContext("t1", "/scratch", 2**30, mount_root="/run")


def places(fs: Filesystem) -> list[str]:
    return list(own_places(plan_stack(Stack(name="x", data=Volume(fs=fs)), CONTEXT)))


@pytest.mark.parametrize("fs", [Ext4(), Nfs(export=Ext4())])
def test_what_pgstrata_made_is_filled(fs: Filesystem) -> None:
    assert places(fs) == ["/run/pgstrata-t1/data"]


@pytest.mark.parametrize("fs", [Nfs(server="filer:/export"), Existing(path="/srv/data"), Tmpfs()])
def test_what_belongs_to_others_is_not(fs: Filesystem) -> None:
    assert places(fs) == []
