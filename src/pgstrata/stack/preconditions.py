"""Checks of a step before it begins, so that it neither takes nor removes what somebody else has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pgstrata.errors import TrialError
from pgstrata.host.protocol import Host, command


@dataclass(frozen=True)
class FreeName:
    """Nothing has that name yet: `ask` fails, which succeeds when something has."""

    what: str
    name: str
    ask: tuple[str, ...]

    @property
    def told(self) -> str:
        return f"refuse when there is a {self.what} {self.name} already"

    def require(self, host: Host, bindings: Mapping[str, str]) -> None:
        if host.run(command(*self.ask), check=False).exit_code == 0:
            raise _taken(host, self.what, self.name)


@dataclass(frozen=True)
class FreePath:
    """Requires that there is nothing called `path`, not even a link that leads nowhere."""

    path: str
    what: str = "folder"

    @property
    def told(self) -> str:
        return f"refuse when {self.path} is there already"

    def require(self, host: Host, bindings: Mapping[str, str]) -> None:
        if host.status(self.path, follow=False) is not None:
            raise _taken(host, self.what, self.path)


def _taken(host: Host, what: str, name: str) -> TrialError:
    """The undo of the step would remove what somebody else has under that name."""
    return TrialError(f"{what} {name} is there already on {host.name}, and this trial did not make it")
