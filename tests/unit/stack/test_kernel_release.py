"""What is refused where the kernel is too old for it."""

from __future__ import annotations

import pytest

from fake_host import FakeHost
from pgstrata.spec.layers.btrfs import Btrfs
from pgstrata.spec.layers.kind import Filesystem
from pgstrata.spec.layers.nfs import Nfs
from pgstrata.stack.kind import FILESYSTEMS


def problem(fs: Filesystem, release: str) -> str:
    host = FakeHost({}, files={"/proc/sys/kernel/osrelease": f"{release}\n"})
    return FILESYSTEMS[fs.stores.kind].kernel_problem(host, fs.stores)


@pytest.mark.parametrize("fs", [Btrfs(data="raid1c3"), Nfs(export=Btrfs(metadata="raid1c4"))], ids=["own", "exported"])
def test_profiles_of_many_copies_need_a_kernel_that_has_them(fs: Filesystem) -> None:
    assert problem(fs, "5.5.0") == problem(fs, "6.18.0-rc1") == ""
    assert "needs Linux 5.5, this is 5.4.99" in problem(fs, "5.4.99")


def test_other_profiles_need_none() -> None:
    assert problem(Btrfs(data="raid10", metadata="dup"), "5.4.99") == ""
