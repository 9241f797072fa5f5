"""Who asks the programs of the servers for a plan: never root where an unprivileged user can."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pgstrata.host.protocol import Command, Completed
from pgstrata.trial.survey.preflight import asking_user


class Host:
    """A machine with these users, of whom some can run the programs."""

    def __init__(self, users: tuple[str, ...], able: tuple[str, ...]) -> None:
        self.users, self.able = users, able

    def read_text(self, path: str) -> str:
        assert path == "/etc/passwd"
        return "".join(f"{user}:x:1:1::/:/bin/false\n" for user in self.users)

    def run(self, asked: Command, check: bool = True) -> Completed:
        assert asked.user in self.users, "a command of a user that does not exist raises"
        return Completed(asked.argv, 0 if asked.user in self.able else 1, "", "", 0.0)


@pytest.mark.parametrize(
    ("as_root", "users", "able", "user"),
    [
        (True, ("root", "nobody", "pgstrata"), ("nobody", "pgstrata"), "pgstrata"),
        (True, ("root", "nobody"), ("nobody",), "nobody"),
        (True, ("root", "nobody", "pgstrata"), ("nobody",), "nobody"),
        (True, ("root", "nobody", "pgstrata"), (), "root"),
        (True, ("root",), ("root",), "root"),
        (False, ("root", "ann"), (), "ann"),
    ],
)
def test_who_asks(as_root: bool, users: tuple[str, ...], able: tuple[str, ...], user: str) -> None:
    programs = {"ext4": SimpleNamespace(program=lambda name: f"/usr/lib/postgresql/15/bin/{name}")}
    own = "pgstrata" if as_root else "ann"
    site = SimpleNamespace(as_root=as_root, user=own, host=Host(users, able), installations=programs)
    assert asking_user(cast(Any, site)) == user
