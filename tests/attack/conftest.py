"""What the attacks share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("root") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs root"))


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """A folder in memory: what is tried is no disk, and records are synced file by file."""
    with tempfile.TemporaryDirectory(prefix="pgstrata-attack-", dir="/dev/shm") as folder:
        yield Path(folder)
