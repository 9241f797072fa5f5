"""Fixtures that several suites use."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from loopback_sshd import SSHD, LoopbackSshd

# The machines that tests run on are shared: time says nothing about the code.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")

# A shell has what it starts in the background ignore it, and so would all that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

SPREAD = (
    "root/test_crash_trials.py",
    "root/test_kill.py",
    "root/test_program.py",
    "root/test_trials.py",
    "attack/test_signals.py",
    "attack/test_kills.py",
    "benches/test_benches.py",
)
"""Slow files without fixtures of their own that are dear to make: their tests may run in several processes."""


@pytest.hookimpl(tryfirst=True)  # the groups must be there when pytest-xdist reads them
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps the tests of a file in one process, except for the marked ones and the slow files."""
    here = Path(__file__).parent
    for item in items:
        name = item.path.relative_to(here).as_posix()
        if name not in SPREAD and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(name))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the server's user can reach (pytest's own are closed to it), in memory: no disk is under test."""
    with tempfile.TemporaryDirectory(prefix="pgstrata-test-", dir="/dev/shm") as name:
        path = Path(name)
        path.chmod(0o711)
        yield path


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackSshd]:
    """A real sshd on loopback, shared by a run; `sshd.connect()` gives a host."""
    if SSHD is None:
        pytest.skip("sshd is not installed: apt-get install openssh-server")
    server = LoopbackSshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.stop()


@pytest.fixture
def own_sshd(tmp_path: Path) -> Iterator[LoopbackSshd]:
    """A real sshd on loopback that a test may stop."""
    if SSHD is None:
        pytest.skip("sshd is not installed: apt-get install openssh-server")
    server = LoopbackSshd(tmp_path / "sshd")
    yield server
    server.stop()
