"""This machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NoReturn

from pgstrata.errors import PreflightError
from pgstrata.host.agent.operations import Agent
from pgstrata.host.agent.wire import AgentError
from pgstrata.host.protocol import Host, refuse


class LocalHost(Host):
    """Calls the agent in this process. `state_directory` overrides where locks and the journal live; `name` is what a
    campaign on several hosts calls this machine."""

    def __init__(self, *, state_directory: str | None = None, name: str = "local") -> None:
        super().__init__(name)
        self._agent = Agent(state_directory, lambda: self._waiting())

    def _call(self, operation: str, *, patience_s: float = 60.0, **arguments: Any) -> Any:
        try:
            return getattr(self._agent, operation)(**arguments)
        except AgentError as error:
            raise refuse(self._name, error) from None


def become(argv: Sequence[str]) -> NoReturn:
    """Replaces this process; PreflightError when the program is not there."""
    try:
        os.execvp(argv[0], list(argv))
    except OSError as error:
        raise PreflightError(
            f"cannot start {argv[0]}: {error.strerror}", hint=f"install {argv[0]}, or see to the PATH"
        ) from error
