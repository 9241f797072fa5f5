"""Tests on a lab machine: real lvm, md, zfs and nfs on a stock kernel; each must leave the machine as it found it.

Each process starts a machine of its own, once. To write tests against a machine that stays up: `pgstrata lab up`, then
PGSTRATA_LAB_MACHINE=lab in the environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench import GoldenCluster
from remains import remains

from pgstrata.host.local import LocalHost
from pgstrata.host.ssh import SshHost
from pgstrata.lab import machines
from pgstrata.lab.image import Image, find_image
from pgstrata.lab.machine import Machine, connect_machine, require_tools
from pgstrata.lab.qemu import DataDisk, MachineSpec
from pgstrata.lab.recipe import Recipe

NAME = f"test-{os.getpid()}"
DISKS = tuple(DataDisk(serial=f"d{i}", size_bytes=320 << 20) for i in range(8))
"""Little more than mkfs.xfs wants: every byte of them is looked at, on a machine that is emulated."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.lab)
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def tell(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Prints a line at once, past pytest's capturing; to standard error, which pytest-xdist's processes share."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(line, file=sys.stderr, flush=True)

    return say


@pytest.fixture(scope="session")
def here() -> Iterator[LocalHost]:
    """The machine that QEMU runs on."""
    local = LocalHost()
    yield local
    local.close()


@pytest.fixture(scope="session")
def image(here: LocalHost) -> Image:
    """The lab image."""
    require_tools(here)
    found = find_image(Recipe())
    assert found is not None, "there is no lab image: `pgstrata lab build` first, as `make test-lab` does"
    return found


@pytest.fixture(scope="session")
def machine(here: LocalHost, request: pytest.FixtureRequest, tell) -> Iterator[Machine]:  # type: ignore[no-untyped-def]
    """A lab machine with eight data disks."""
    kept = os.environ.get("PGSTRATA_LAB_MACHINE")
    if kept:
        yield machines.find(here, kept)
        return
    image: Image = request.getfixturevalue("image")
    spec = MachineSpec(name=NAME, cpus=1, disks=DISKS)
    (started,) = machines.up(here, image, [spec], say=tell, owned=True)
    yield started
    assert machines.down(here, NAME) == (NAME,)
    assert here.status(started.directory) is None


@pytest.fixture(scope="session")
def session_host(machine: Machine) -> Iterator[SshHost]:
    host = connect_machine(machine)
    yield host
    host.close()


@pytest.fixture(scope="session")
def golden(session_host: SshHost) -> GoldenCluster:
    """The loaded cluster that the image holds."""
    return GoldenCluster.on(session_host)


@pytest.fixture
def host(session_host: SshHost) -> Iterator[SshHost]:
    """The lab machine; fails a test that leaves anything on it."""
    yield session_host
    assert remains(session_host) == []
