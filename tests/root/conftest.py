"""Tests that need root and real kernel facilities; each must leave the machine as it found it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from leavings import leftovers

from pgstrata.host.local import LocalHost

# Loop devices, mounts and processes are told apart from those of other programs on the machine by the folder of the
# test, and its processes by this marker in their environment.


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.root)
            if os.geteuid() != 0:
                item.add_marker(pytest.mark.skip(reason="needs root"))


def settings() -> dict[str, str]:
    """Every kernel setting that a stack may change."""
    names = ["dirty_bytes", "dirty_ratio", "dirty_background_bytes", "dirty_background_ratio", "swappiness"]
    names += ["overcommit_memory", "overcommit_ratio", "overcommit_kbytes", "nr_hugepages"]
    files = [Path("/proc/sys/vm") / name for name in names]
    files.append(Path("/sys/kernel/mm/transparent_hugepage/enabled"))
    return {str(file): file.read_text() for file in files}


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Fails a test that leaves a loop device, a mount, a process or a changed kernel setting behind."""
    before = settings()
    yield
    assert leftovers(tmp_path) == []
    assert settings() == before


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LocalHost]:
    """This machine, with a state directory of the test's own."""
    local = LocalHost(state_directory=str(tmp_path / "state"))
    yield local
    local.close()
