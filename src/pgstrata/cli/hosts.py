"""From the host that a campaign names to a host that is there, and gone again afterwards where we started it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pgstrata.host.connect import connect
from pgstrata.host.protocol import Host
from pgstrata.trial.progress import Progress


@contextmanager
def campaign_host(text: str, progress: Progress) -> Iterator[Host]:
    """A connected host; the connection is closed when the block ends."""
    host = connect(text)
    try:
        yield host
    finally:
        host.close()
