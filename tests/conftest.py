"""Fixtures that several suites use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from loopback_sshd import SSHD, LoopbackSshd

# The machines that tests run on are shared: time says nothing about the code.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackSshd]:
    """A real sshd on loopback, shared by a run; `sshd.connect()` gives a host."""
    if SSHD is None:
        pytest.skip("sshd is not installed: apt-get install openssh-server")
    server = LoopbackSshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.clear()


@pytest.fixture
def own_sshd(tmp_path: Path) -> Iterator[LoopbackSshd]:
    """A real sshd on loopback that a test may stop."""
    if SSHD is None:
        pytest.skip("sshd is not installed: apt-get install openssh-server")
    server = LoopbackSshd(tmp_path / "sshd")
    yield server
    server.clear()
