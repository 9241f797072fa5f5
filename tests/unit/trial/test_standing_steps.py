"""The shared memory of every server is journaled on the host that it runs on, before anything starts it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from pgstrata.postgres.server import ServerDirectories
from pgstrata.stack.undo import RemoveServerMemory
from pgstrata.trial.context import TrialSetup
from pgstrata.trial.program import memory_steps


def test_the_memory_of_each_server_is_journaled_on_its_host() -> None:
    servers = {
        name: SimpleNamespace(at=at, user=user, layout=ServerDirectories(f"/mnt/{name}"))
        for name, at, user in (("primary", "", "pgstrata"), ("near", "", "pgstrata"), ("far", "ssh://db2", "admin"))
    }
    plan = SimpleNamespace(hosts=("", "ssh://db2"))
    steps = memory_steps(cast("TrialSetup", SimpleNamespace(servers=servers, plan=plan)))
    assert {step.host: step.undo for step in steps if step.undo} == {
        "": tuple(RemoveServerMemory(user="pgstrata", data_directory=f"/mnt/{name}") for name in ("primary", "near")),
        "ssh://db2": (RemoveServerMemory(user="admin", data_directory="/mnt/far"),),
    }
