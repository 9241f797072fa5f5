"""An advisory lock of a host that is waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from pgstrata.errors import PreflightError
from pgstrata.host.protocol import Host

PAUSE_S = 0.05


@contextmanager
def locked(
    host: Host, name: str, payload: str, *, what: str, wait_s: float, pause_s: float = PAUSE_S
) -> Iterator[None]:
    """Hold a lock, which others may keep for `wait_s`; PreflightError, with its holder, if it is not free by then."""
    deadline_s = time.monotonic() + wait_s
    while (holder := host.try_lock(name, payload)) is not None:
        if time.monotonic() > deadline_s:
            raise PreflightError(f"{what} on {host.name} are locked by another pgstrata: {holder}")
        host.pause(pause_s)
    try:
        yield
    finally:
        host.unlock(name)
