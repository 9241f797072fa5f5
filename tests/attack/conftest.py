"""What the attacks share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """A folder in memory: what is tried is no disk, and records are synced file by file."""
    with tempfile.TemporaryDirectory(prefix="pgstrata-attack-", dir="/dev/shm") as folder:
        yield Path(folder)
