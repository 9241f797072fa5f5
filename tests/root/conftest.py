"""Tests that need root and real kernel facilities; each must leave the machine as it found it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from apart import mount_apart
from leavings import kernel_settings, leftovers, settings
from pgstrata.crash.state_worker import CLONE_NEWNS, checked, libc
from pgstrata.errors import PreflightError
from pgstrata.host.local import LocalHost
from pgstrata.host.protocol import command
from pgstrata.postgres.binaries import Installation, choose, discover
from pgstrata.postgres.server import Server, ServerDirectories
from pgstrata.postgres.user import readable_installation, run_user
from pgstrata.spec.stack import Postgres

# Loop devices, mounts and processes are told apart from those of other programs on the machine by the folder of the
# test, and its processes by this marker in their environment.


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.root)
            if os.geteuid() != 0:
                item.add_marker(pytest.mark.skip(reason="needs root"))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder that the server's user can reach."""
    folder = Path("/var/tmp") / f"test-{os.getpid()}-{tmp_path.name}"
    folder.mkdir(mode=0o755)
    yield folder
    left = leftovers(folder)
    subprocess.run(["rm", "--recursive", "--force", str(folder)], check=True, timeout=60)
    assert left == []


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """Fails a test that leaves a loop device, a mount, a process or a changed kernel setting behind.

    The settings belong to the whole machine: with several processes at work, only the tests marked `kernel_settings`
    may change them, one after the other.
    """
    before = settings()
    yield
    assert leftovers(tmp_path) == []
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    if alone or request.node.get_closest_marker("xdist_group") == kernel_settings.mark:
        assert settings() == before


@pytest.fixture
def own_mounts() -> Iterator[None]:
    """The test, and all that it starts, mounts in a namespace of its own.

    For tests that leave a filesystem mounted over a disk whose daemon is gone: as long as that lasts, mkfs.btrfs
    cannot check any device for whoever sees the mount.
    """
    before = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY)
    try:
        mount_apart()
        yield
        checked(libc.setns(before, CLONE_NEWNS), "the namespace of before")
    finally:
        os.close(before)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LocalHost]:
    """This machine, with a state directory of the test's own."""
    local = LocalHost(state_directory=str(tmp_path / "state"))
    yield local
    local.close()


@pytest.fixture
def blank_disk(host: LocalHost, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A file of 64 MiB and its loop device."""
    file = tmp_path / "disk.img"
    with file.open("wb") as handle:
        handle.truncate(64 * 2**20)
    node = host.run(command("losetup", "--find", "--show", str(file))).stdout.strip()
    yield str(file), node
    host.run(command("losetup", "--detach", node))


@pytest.fixture(scope="module")
def found() -> Iterator[tuple[Installation, ...]]:
    """Every installation of PostgreSQL on this machine."""
    local = LocalHost()
    yield discover(local)
    local.close()


@pytest.fixture(params=[15, 16, 18])
def installation(request: pytest.FixtureRequest, host: LocalHost, found: tuple[Installation, ...]) -> Installation:
    try:
        chosen = choose(found, Postgres(major=request.param))
    except PreflightError as error:
        pytest.skip(str(error))
    return readable_installation(host, chosen, run_user(host))


@pytest.fixture
def server(host: LocalHost, installation: Installation, folder: Path) -> Iterator[Server]:
    made = Server(host, installation, run_user(host), ServerDirectories(f"{folder}/data"), marker=folder.name)
    yield made
    made.crash_stop()
    host.remove(made.run_directory)
